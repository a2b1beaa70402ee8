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
  useRouter,
} from "@tanstack/react-router";
import { StrictMode, Suspense, lazy, useCallback, useEffect } from "react";
import { createRoot } from "react-dom/client";
import "./look/base.css";
import "./look/app.css";
import "./look/theme.ts";
import { SessionContext, useMay, useSession } from "./context.ts";
import { useInbox } from "./api/inbox.ts";
import { useReader } from "./api/session.ts";
import { Inbox } from "./pages/inbox/Inbox.tsx";
import { inboxSearch } from "./pages/inbox/filters.ts";
import { runSearch } from "./pages/run/search.ts";
import { runsSearch } from "./pages/runs/filters.ts";
import { Settings, isOpenHouse } from "./pages/Settings.tsx";
import { SignIn } from "./pages/SignIn.tsx";
import { Boundary } from "./parts/Boundary.tsx";
import { Going } from "./parts/Go.tsx";
import { ProblemNote } from "./parts/Problem.tsx";
import { useText } from "./text/index.ts";

const queries = new QueryClient({
  defaultOptions: { queries: { retry: 1, staleTime: 2_000, refetchOnWindowFocus: true } },
});

const root = createRootRoute({ component: Shell, notFoundComponent: NotHere });
const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/inbox" });
  },
});
const inbox = createRoute({ getParentRoute: () => root, path: "/inbox", validateSearch: inboxSearch, component: Outlet });
const inboxList = createRoute({ getParentRoute: () => inbox, path: "/", component: () => <Inbox id={null} /> });
const inboxItem = createRoute({ getParentRoute: () => inbox, path: "$id", component: InboxItemPage });
const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  validateSearch: runsSearch,
  component: lazyRouteComponent(() => import("./pages/runs/Runs.tsx"), "Runs"),
});
const run = createRoute({ getParentRoute: () => root, path: "/runs/$id", validateSearch: runSearch, component: RunPage });
const LazyRun = lazy(() => import("./pages/run/Run.tsx").then(({ Run }) => ({ default: Run })));
const settings = createRoute({ getParentRoute: () => root, path: "/settings", component: SettingsPage });

const router = createRouter({
  routeTree: root.addChildren([home, inbox.addChildren([inboxList, inboxItem]), runs, run, settings]),
  basepath: "/console",
  scrollRestoration: false,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

function InboxItemPage() {
  return <Inbox id={inboxItem.useParams().id} />;
}

function RunPage() {
  const t = useText();
  const { id } = run.useParams();
  return (
    <Suspense fallback={<p role="status">{t.app.loading}</p>}>
      <LazyRun key={id} id={id} />
    </Suspense>
  );
}

function SettingsPage() {
  return <Settings changed={() => location.reload()} />;
}

function NotHere() {
  const t = useText();
  return (
    <>
      <h1>{t.app.unknownTitle}</h1>
      <p>{t.app.unknown}</p>
    </>
  );
}

function Shell() {
  const t = useText();
  const session = useSession();
  const { items } = useInbox();
  const navigate = useNavigate();
  const { state } = useRouter();
  const mine = (items ?? []).filter((each) => each.may_decide || each.on_behalf_of.length > 0).length;
  const seesRuns = useMay("see_own");
  const open = isOpenHouse(session.way);
  const go = useCallback(
    (href: string) => void navigate({ href: href.replace(/^\/console/, "") || "/" }),
    [navigate],
  );
  useEffect(() => {
    document.title = `${mine > 0 ? `(${mine}) ` : ""}HAI Flow${open ? ` · ${t.app.development}` : ""}`;
  }, [mine, open, t, state.location.pathname]);
  return (
    <Going.Provider value={go}>
      <div className="shell">
        <a className="skip" href="#content">
          {t.app.skip}
        </a>
        <header className={`top ${open ? "development" : ""}`}>
          <span className="brand">HAI Flow</span>
          <nav aria-label={t.app.main}>
            <Link to="/inbox">
              {t.app.inbox} {mine > 0 && <span className="tag accent">{mine}</span>}
            </Link>
            {seesRuns && (
              <Link to="/runs" activeOptions={{ includeSearch: false }}>
                {t.app.runs}
              </Link>
            )}
            <Link to="/settings">{t.app.settings}</Link>
          </nav>
          {open && (
            <span className="tag warn" title={t.app.noIdentity}>
              {t.app.development}: {session.principal}
            </span>
          )}
        </header>
        <main id="content" className="page" tabIndex={-1}>
          <Outlet />
        </main>
      </div>
    </Going.Provider>
  );
}

function Console() {
  const t = useText();
  const [reader, ask] = useReader();
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
