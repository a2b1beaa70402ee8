// The console: its pages behind one router, for one reader.

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import {
  Link,
  Outlet,
  RouterProvider,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
  useNavigate,
  useParams,
  useRouterState,
} from "@tanstack/react-router";
import { StrictMode, useCallback, useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import "./look/base.css";
import "./look/app.css";
import "./look/lists.css";
import "./look/pages.css";
import "./look/theme.ts";
import "./standing.ts";
import { SessionContext, useMay, useSession } from "./context.ts";
import type { Connection } from "./api/client.ts";
import { useInbox } from "./api/inbox.ts";
import { useReader } from "./api/session.ts";
import { Inbox } from "./pages/inbox/Inbox.tsx";
import { isTyping } from "./pages/decide/Decision.tsx";
import { useLast } from "./pages/last.ts";
import { inboxSearch } from "./pages/inbox/filters.ts";
import { askAtOnce, askEarly } from "./pages/run/early.ts";
import { compareSearch, runSearch } from "./pages/run/search.ts";
import { runsSearch } from "./pages/runs/filters.ts";
import { auditSearch } from "./pages/audit/search.ts";
import { feedbackSearch } from "./pages/feedback/search.ts";
import { oversightSearch } from "./pages/oversight/search.ts";
import { isOpenHouse } from "./pages/settings/house.ts";
import { editSearch, listSearch, workflowSearch } from "./pages/workflows/search.ts";
import { SignIn } from "./pages/SignIn.tsx";
import { Boundary } from "./parts/Boundary.tsx";
import { Freezes } from "./parts/Freezes.tsx";
import { Going } from "./parts/Go.tsx";
import { Undos } from "./parts/Leaving.tsx";
import { Missing } from "./parts/Missing.tsx";
import { ProblemNote } from "./parts/Problem.tsx";
import { useText } from "./text/index.ts";

const queries = new QueryClient({
  defaultOptions: {
    // A browser without a network may still reach a server on its own machine: only an answer that stays away tells.
    queries: { retry: 1, staleTime: 2_000, refetchOnWindowFocus: true, refetchOnReconnect: true, networkMode: "always" },
  },
});

askAtOnce(queries);

const root = createRootRoute({ component: Shell, notFoundComponent: Missing });
const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/inbox" });
  },
});
const inbox = createRoute({ getParentRoute: () => root, path: "/inbox", validateSearch: inboxSearch, component: InboxPage });
// One page for both: what is typed, chosen or asked in the list stays when a question is opened.
const inboxList = createRoute({ getParentRoute: () => inbox, path: "/", component: () => null });
const inboxItem = createRoute({ getParentRoute: () => inbox, path: "$id", component: () => null });
const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  validateSearch: runsSearch,
  component: lazyRouteComponent(() => import("./pages/runs/Runs.tsx"), "Runs"),
});
const run = createRoute({
  getParentRoute: () => root,
  path: "/runs/$id",
  validateSearch: runSearch,
  loader: ({ params }) => void askEarly(queries, params.id),
  component: lazyRouteComponent(() => import("./pages/run/Run.tsx"), "RunPage"),
});
const compare = createRoute({
  getParentRoute: () => root,
  path: "/runs/$id/compare",
  validateSearch: compareSearch,
  component: lazyRouteComponent(() => import("./pages/run/Compare.tsx"), "ComparePage"),
});
const workflows = createRoute({
  getParentRoute: () => root,
  path: "/workflows",
  validateSearch: listSearch,
  component: lazyRouteComponent(() => import("./pages/workflows/Workflows.tsx"), "Workflows"),
});
const workflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/$name",
  validateSearch: workflowSearch,
  component: lazyRouteComponent(() => import("./pages/workflows/Workflow.tsx"), "WorkflowPage"),
});
const newWorkflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/new",
  validateSearch: editSearch,
  component: lazyRouteComponent(() => import("./pages/workflows/Edit.tsx"), "NewPage"),
});
const editWorkflow = createRoute({
  getParentRoute: () => root,
  path: "/workflows/$name/edit",
  validateSearch: editSearch,
  component: lazyRouteComponent(() => import("./pages/workflows/Edit.tsx"), "EditPage"),
});
const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  component: lazyRouteComponent(() => import("./pages/schedules/Schedules.tsx"), "Schedules"),
});
const overview = createRoute({
  getParentRoute: () => root,
  path: "/overview",
  component: lazyRouteComponent(() => import("./pages/overview/Overview.tsx"), "Overview"),
});
const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  validateSearch: auditSearch,
  component: lazyRouteComponent(() => import("./pages/audit/Audit.tsx"), "Audit"),
});
const oversight = createRoute({
  getParentRoute: () => root,
  path: "/oversight",
  validateSearch: oversightSearch,
  component: lazyRouteComponent(() => import("./pages/oversight/Oversight.tsx"), "Oversight"),
});
const feedback = createRoute({
  getParentRoute: () => root,
  path: "/feedback",
  validateSearch: feedbackSearch,
  component: lazyRouteComponent(() => import("./pages/feedback/Feedback.tsx"), "Feedback"),
});
const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  component: lazyRouteComponent(() => import("./pages/settings/Settings.tsx"), "Settings"),
});

const later = [workflows, newWorkflow, workflow, editWorkflow, schedules, overview, audit, oversight, feedback] as const;
const router = createRouter({
  routeTree: root.addChildren([home, inbox.addChildren([inboxList, inboxItem]), runs, run, compare, ...later, settings]),
  basepath: "/console",
  scrollRestoration: false,
  defaultPendingMs: 300,
  defaultPendingMinMs: 0,
  defaultPendingComponent: Loading,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

function InboxPage() {
  return <Inbox id={useParams({ strict: false, select: ({ id }) => id ?? null })} />;
}

function Loading() {
  return <p role="status">{useText().app.loading}</p>;
}

function Shell() {
  const t = useText();
  const session = useSession();
  const { items, full, connection } = useInbox();
  const lost = useLost(connection);
  const navigate = useNavigate();
  const place = useRouterState({ select: ({ location }) => decodeURIComponent(location.pathname) });
  const section = place.split("/")[1] ?? "";
  const mine = (items ?? []).filter((each) => each.may_decide || each.on_behalf_of.length > 0).length;
  const count = `${mine}${full ? "+" : ""}`;
  const inboxFilters = inboxSearch(useLast("inbox"));
  const runsFilters = runsSearch(useLast("runs"));
  const seesRuns = useMay("see_own");
  const readsWorkflows = useMay("read_workflows");
  const seesSchedules = useMay("see_runs");
  const audits = useMay("read_audit");
  const decides = useMay("decide");
  const operates = useMay("control_runs");
  const open = isOpenHouse(session.way);
  const go = useCallback(
    (href: string) => void navigate({ href: href.replace(/^\/console/, "") || "/" }),
    [navigate],
  );
  useEffect(() => {
    const { inbox, runs, workflows, schedules, overview, audit, oversight, feedback, settings } = t.app;
    const here = ({ inbox, runs, workflows, schedules, overview, audit, oversight, feedback, settings } as Record<string, string>)[section];
    document.title = `${mine > 0 ? `(${count}) ` : ""}${here ? `${here} · ` : ""}HAI Flow${open ? ` · ${t.app.development}` : ""}`;
  }, [mine, count, open, t, section]);
  useRowKeys(section === "inbox");
  const links = useRef<HTMLElement>(null);
  useEffect(() => {
    // Where there is room for some of the links only, the reader sees the one that says where this is.
    const [all, here] = [links.current, links.current?.querySelector<HTMLElement>("[aria-current=page]")];
    if (all && here) all.scrollLeft = here.offsetLeft - all.offsetLeft - (all.clientWidth - here.clientWidth) / 2;
  }, [section, mine, t]);
  return (
    <Going.Provider value={go}>
      <div className="shell">
        <a className="skip" href="#content">
          {t.app.skip}
        </a>
        <header className={`top ${open ? "development" : ""}`}>
          <span className="brand">HAI Flow</span>
          <nav aria-label={t.app.main} ref={links}>
            <Link to="/inbox" search={inboxFilters} activeOptions={{ includeSearch: false }}>
              {t.app.inbox} {mine > 0 && <span className="tag accent">{count}</span>}
            </Link>
            {seesRuns && (
              <Link to="/runs" search={runsFilters} activeOptions={{ includeSearch: false }}>
                {t.app.runs}
              </Link>
            )}
            {readsWorkflows && (
              <Link to="/workflows" activeOptions={{ includeSearch: false }}>
                {t.app.workflows}
              </Link>
            )}
            {seesSchedules && <Link to="/schedules">{t.app.schedules}</Link>}
            {operates && <Link to="/overview">{t.app.overview}</Link>}
            {audits && (
              <Link to="/audit" activeOptions={{ includeSearch: false }}>
                {t.app.audit}
              </Link>
            )}
            {(audits || decides) && (
              <Link to="/oversight" activeOptions={{ includeSearch: false }}>
                {t.app.oversight}
              </Link>
            )}
            {seesRuns && (
              <Link to="/feedback" activeOptions={{ includeSearch: false }}>
                {t.app.feedback}
              </Link>
            )}
            <Link to="/settings">{t.app.settings}</Link>
          </nav>
          {open && (
            <span className="tag warn" title={t.app.noIdentity}>
              {t.app.development}{t.app.colon}{session.principal}
            </span>
          )}
        </header>
        <main id="content" className="page" tabIndex={-1}>
          {lost && (
            <p className="note bad" role="status">
              {t.connection.lost}
            </p>
          )}
          {seesRuns && <Freezes />}
          <Outlet />
        </main>
        <Undos but={section === "inbox" ? (place.split("/")[2] ?? null) : null} />
      </div>
    </Going.Provider>
  );
}

/** Whether the connection was lost and is not there again: trying again is no news. */
function useLost(connection: Connection): boolean {
  const [lost, setLost] = useState(false);
  useEffect(() => {
    if (connection !== "connecting") setLost(connection === "lost");
  }, [connection]);
  return lost;
}

const ROWS = "main a.line, main button.line, main .tiles > li h2 a, main .tiles > li h3 a, main .records > li > details > summary";

/** j and k go through the rows of whatever list a page has. The inbox opens each as it comes to it, by itself. */
function useRowKeys(off: boolean): void {
  useEffect(() => {
    if (off) return;
    const pressed = (event: KeyboardEvent): void => {
      const step = { j: 1, k: -1 }[event.key];
      if (step === undefined || event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      const rows = [...document.querySelectorAll<HTMLElement>(ROWS)].filter((each) => each.offsetParent !== null);
      const at = rows.findIndex((each) => each === document.activeElement);
      const to = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + step))];
      if (to === undefined) return;
      event.preventDefault();
      to.focus();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [off]);
}

function Console() {
  const t = useText();
  const [reader, ask] = useReader();
  useEffect(() => {
    if (reader.state === "nobody") queries.clear(); // somebody else may sign in
  }, [reader.state]);
  if (reader.state === "nobody") return <SignIn retry={ask} />;
  if (reader.state === "known") {
    return (
      <SessionContext.Provider value={reader.session}>
        <RouterProvider router={router} />
      </SessionContext.Provider>
    );
  }
  return (
    <main className="alone">
      {reader.state === "failed" ? <ProblemNote problem={reader.problem} again={ask} /> : <p role="status">{t.app.loading}</p>}
    </main>
  );
}

void router.load(); // what the page needs comes while the server is asked who reads
const element = document.getElementById("root");
if (element) {
  createRoot(element).render(
    <StrictMode>
      <Boundary>
        <QueryClientProvider client={queries}>
          <Console />
        </QueryClientProvider>
      </Boundary>
    </StrictMode>,
  );
}
