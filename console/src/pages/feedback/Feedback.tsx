// What people thought of the answers and decisions of a thread.

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { FeedbackPage, Feedback as Opinion, ThreadPage } from "../../api/types.gen.ts";
import { plainName } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { Missing } from "../../parts/Missing.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { Text } from "../../parts/Value.tsx";
import { moment } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { usePageText } from "../../text/pages.ts";

const PAGE = 100;

export function Feedback() {
  const t = useRunText();
  const p = usePageText().feedback;
  const { thread } = getRouteApi("/feedback").useSearch();
  const navigate = useNavigate();
  const threads = useQuery({
    queryKey: ["threads"],
    queryFn: ({ signal }) => get<ThreadPage>("/v1/threads?limit=100", signal),
  });
  const opinions = useOpinions(thread);
  const known = threads.data?.items.map((each) => each.id) ?? [];
  if (opinions.error && asProblem(opinions.error).status === 404) return <Missing />;
  return (
    <>
      <h1>{p.title}</h1>
      <p className="quiet">{p.hint}</p>
      {threads.error && <ProblemNote problem={asProblem(threads.error)} again={() => void threads.refetch()} />}
      <div className="field short">
        <label htmlFor="thread">{t.runs.thread}</label>
        <select
          id="thread"
          value={thread ?? ""}
          onChange={(event) => void navigate({ to: "/feedback", search: { thread: event.currentTarget.value || undefined }, replace: true })}
        >
          <option value="" />
          {[...new Set([...(thread ? [thread] : []), ...known])].map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </div>
      {thread ? <Opinions found={opinions} /> : <p className="quiet">{p.choose}</p>}
    </>
  );
}

function useOpinions(thread: string | undefined) {
  return useInfiniteQuery({
    queryKey: ["feedback", thread],
    queryFn: ({ pageParam, signal }) => {
      const query = new URLSearchParams({ limit: String(PAGE), ...(pageParam && { cursor: pageParam }) });
      return get<FeedbackPage>(`/v1/threads/${encodeURIComponent(thread ?? "")}/feedback?${query}`, signal);
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    enabled: thread !== undefined,
    retry: false,
  });
}

function Opinions({ found }: { found: ReturnType<typeof useOpinions> }) {
  const t = useRunText();
  const p = usePageText().feedback;
  const items = found.data?.pages.flatMap((page) => page.items) ?? [];
  if (found.error) return <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />;
  if (found.isPending) return <p role="status">{t.app.loading}</p>;
  if (items.length === 0) return <p role="status">{p.empty}</p>;
  return (
    <>
      <ul className="tiles wide">
        {items.map((each) => (
          <One key={each.id} opinion={each} />
        ))}
      </ul>
      {found.hasNextPage && <button onClick={() => void found.fetchNextPage()}>{p.more}</button>}
    </>
  );
}

function One({ opinion }: { opinion: Opinion }) {
  const t = useRunText();
  const p = usePageText().feedback;
  const { rating } = opinion;
  const tone = rating === "up" || Number(rating) > 3 ? "good" : rating === "down" || (rating !== null && Number(rating) < 3) ? "bad" : "";
  return (
    <li className="card">
      <p className="row small">
        {rating !== null && <span className={`tag ${tone}`}>{rating === "up" ? p.up : rating === "down" ? p.down : p.stars(rating)}</span>}
        <span>
          {plainName(opinion.by).slice(0, 200)} · {p.of[opinion.kind]} · {moment(opinion.updated_at)}
        </span>
        <span className="grow" />
        <Go href={`/console/runs/${opinion.run_id}`}>{t.decision.toRun}</Go>
      </p>
      {opinion.comment && <Text text={opinion.comment} />}
      <p className="row">
        {opinion.labels.map((each) => (
          <span key={each} className="tag">
            {each}
          </span>
        ))}
      </p>
    </li>
  );
}
