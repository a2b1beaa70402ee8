// What can be started here.

import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { get } from "../../api/client.ts";
import { useNow } from "../../api/now.ts";
import { asProblem } from "../../api/problems.ts";
import type { WorkflowPage } from "../../api/types.gen.ts";
import { useMay } from "../../context.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { moment, since } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";

const PAGE = 200;

export function Workflows() {
  const t = useText();
  const p = usePageText().workflows;
  const now = useNow();
  const { q = "" } = getRouteApi("/workflows").useSearch();
  const navigate = useNavigate();
  const writes = useMay("check_workflows");
  const found = useInfiniteQuery({
    queryKey: ["workflows"],
    queryFn: ({ pageParam, signal }) => get<WorkflowPage>(`/v1/workflows?limit=${PAGE}${pageParam ? `&cursor=${pageParam}` : ""}`, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
  });
  const all = found.data?.pages.flatMap((page) => page.items) ?? [];
  const wanted = q.toLowerCase();
  const shown = all.filter((each) => `${each.name} ${each.title ?? ""}`.toLowerCase().includes(wanted));
  const create = writes && (
    <Go href="/console/workflows/new" className="button main">
      {p.create}
    </Go>
  );
  return (
    <>
      <div className="row">
        <h1 className="grow">{p.title}</h1>
        {create}
      </div>
      <div className="filters">
        <input
          type="search"
          aria-label={p.find}
          placeholder={p.find}
          value={q}
          onInput={(event) => void navigate({ to: "/workflows", search: { q: event.currentTarget.value || undefined }, replace: true })}
        />
      </div>
      <p role="status" className="quiet">
        {found.data ? p.shown(shown.length) : found.isPending && t.app.loading}
      </p>
      {found.error && <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />}
      {found.data && all.length === 0 && (
        <div className="card stack">
          <h2>{p.empty}</h2>
          <p className="quiet">{p.emptyHint}</p>
          <p>{create}</p>
        </div>
      )}
      {all.length > 0 && shown.length === 0 && <p>{p.none}</p>}
      <ul className="tiles">
        {shown.map((each) => (
          <li key={each.name} className="card">
            <h2>
              <Go href={`/console/workflows/${encodeURIComponent(each.name)}`}>{(each.title ?? each.name).slice(0, 200)}</Go>
            </h2>
            <p className="quiet small">
              <code>{each.name}</code> · {p.version(each.version)} {each.dev && <span className="tag warn">{p.draft}</span>}
            </p>
            <p className="quiet small">
              {p.published} <time dateTime={each.created_at} title={moment(each.created_at)}>{since(each.created_at, now)}</time>
            </p>
          </li>
        ))}
      </ul>
      {found.hasNextPage && (
        <button disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          {t.app.more}
        </button>
      )}
    </>
  );
}
