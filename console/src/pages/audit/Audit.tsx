// Who did what, for auditors; and a proof by the reader's own browser that nobody changed it since.

import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useId, useState } from "react";
import { get } from "../../api/client.ts";
import { asProblem } from "../../api/problems.ts";
import type { AuditAnchor, AuditChainPage, AuditPage, AuditRecord } from "../../api/types.gen.ts";
import { ChainVerifier, toHex } from "../../logic/chain.ts";
import { plainName } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { Value } from "../../parts/Value.tsx";
import { WithCode } from "../../parts/WithCode.tsx";
import { exactly, moment } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";
import { usePageText } from "../../text/pages.ts";
import { type AuditSearch, FILTERS, auditQuery } from "./search.ts";

const PAGE = 100;
const CHAIN_PAGE = 200;

export function Audit() {
  const t = useText();
  const p = usePageText().audit;
  const search = getRouteApi("/audit").useSearch();
  const found = useInfiniteQuery({
    queryKey: ["audit", search],
    queryFn: ({ pageParam, signal }) => get<AuditPage>(`/v1/audit?${auditQuery(search, PAGE, pageParam)}`, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    staleTime: 60_000, // each look is recorded
    refetchOnWindowFocus: false,
  });
  const items = found.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <>
      <h1>{p.title}</h1>
      <p className="quiet">{p.hint}</p>
      <Chain />
      <Filters key={JSON.stringify(search)} search={search} />
      {found.isPending && <p role="status">{t.app.loading}</p>}
      {found.error && <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />}
      {found.data && items.length === 0 && <p role="status">{p.empty}</p>}
      <ul className="records">
        {items.map((each) => (
          <Row key={each.id} record={each} />
        ))}
      </ul>
      {found.hasNextPage && (
        <button disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          {p.more}
        </button>
      )}
    </>
  );
}

function Filters({ search }: { search: AuditSearch }) {
  const p = usePageText().audit;
  const id = useId();
  const navigate = useNavigate();
  const [written, setWritten] = useState(search);
  const labels = { principal: p.principal, act: p.act, run_id: p.run, subject: p.subject, since: p.since, until: p.until };
  return (
    <form
      className="filters even"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        void navigate({ to: "/audit", search: Object.fromEntries(Object.entries(written).filter(([, value]) => value?.trim())) });
      }}
    >
      {FILTERS.map((each) => (
        <div key={each}>
          <label className="small quiet" htmlFor={id + each}>
            {labels[each]}
          </label>
          <input
            id={id + each}
            type={each === "since" || each === "until" ? "datetime-local" : "search"}
            value={written[each] ?? ""}
            onInput={(event) => setWritten({ ...written, [each]: event.currentTarget.value })}
          />
        </div>
      ))}
      <button className="main">{p.search}</button>
    </form>
  );
}

function Row({ record }: { record: AuditRecord }) {
  const t = useText();
  const p = usePageText().audit;
  return (
    <li>
      <details>
        <summary>
          <span className="facts-line">
            <time dateTime={record.at} title={exactly(record.at)} className="quiet">
              {moment(record.at)}
            </time>
            <b>{record.act}</b>
            <span>{record.by === null ? p.erased : plainName(record.by).slice(0, 200)}</span>
            <span className="quiet">{(record.subject ?? "").slice(0, 200)}</span>
          </span>
        </summary>
        <dl className="facts">
          <dt>{p.place}</dt>
          <dd>{record.n ?? p.unsealed}</dd>
          {record.run_id && (
            <>
              <dt>{p.run}</dt>
              <dd>
                <Go href={`/console/runs/${record.run_id}${record.seq ? `?at=${record.seq}` : ""}`}>{record.run_id}</Go>
              </dd>
            </>
          )}
          {record.digest && (
            <>
              <dt>{t.decision.digest}</dt>
              <dd>
                <code>{record.digest}</code>
              </dd>
            </>
          )}
        </dl>
        {record.erased_at ? <p className="quiet">{p.erased}</p> : record.details && <Value value={record.details} />}
      </details>
    </li>
  );
}

type Doing = "verify" | "export";

function Chain() {
  const t = useText();
  const p = usePageText().audit;
  const { busy, problem, send, stop } = useSending();
  const [read, setRead] = useState(0);
  const [done, setDone] = useState<{ verifier: ChainVerifier; anchor: AuditAnchor } | null>(null);
  const secure = typeof crypto !== "undefined" && crypto.subtle !== undefined;

  async function work(what: Doing): Promise<void> {
    setRead(0);
    setDone(null);
    await send(async (signal, heard) => {
      const anchor = await get<AuditAnchor>("/v1/audit/anchor", signal);
      const verifier = what === "verify" ? await ChainVerifier.of(anchor.tenant) : null;
      const lines: string[] = [];
      let cursor: string | null = null;
      do {
        const page: AuditChainPage = await get(`/v1/audit/chain?limit=${CHAIN_PAGE}${cursor ? `&cursor=${cursor}` : ""}`, signal);
        for (const each of page.items) {
          if (verifier && each.n > anchor.n) break; // reading is recorded as well: the chain grows meanwhile
          if (verifier) await verifier.check(each);
          else lines.push(`${JSON.stringify(each)}\n`);
        }
        cursor = verifier && (page.items.at(-1)?.n ?? 0) >= anchor.n ? null : page.next_cursor;
        heard();
        setRead((n) => n + page.items.length);
      } while (cursor !== null && !signal.aborted);
      if (signal.aborted) return; // what was read until then proves nothing
      if (verifier) setDone({ verifier, anchor });
      else save(lines);
    });
  }

  return (
    <section className="card stack" aria-label={p.verify}>
      <div className="row">
        <button disabled={busy || !secure} onClick={() => void work("verify")}>
          {p.verify}
        </button>
        <button disabled={busy} onClick={() => void work("export")}>
          {p.export}
        </button>
        {busy && <button onClick={stop}>{p.stop}</button>}
      </div>
      <dl className="facts small">
        <dt>{p.verify}</dt>
        <dd>
          <WithCode text={secure ? p.verifyHint : p.insecure} />
        </dd>
        <dt>{p.export}</dt>
        <dd>
          <WithCode text={p.exportHint} />
        </dd>
      </dl>
      {problem && <ProblemNote problem={problem} />}
      <div role="status">
        {busy && <p className="busy">{p.verifying(read)}</p>}
        {done && <Outcome {...done} />}
      </div>
      {busy && <progress aria-label={t.app.loading} />}
    </section>
  );
}

function Outcome({ verifier, anchor }: { verifier: ChainVerifier; anchor: AuditAnchor }) {
  const p = usePageText().audit;
  const whole = verifier.faults.length === 0 && toHex(verifier.hash) === anchor.hash;
  return (
    <div className={`note ${whole ? "good" : "bad"}`}>
      <p>{whole ? p.whole(verifier.n) : p.faults(Math.max(1, verifier.faults.length))}</p>
      {verifier.faults.length > 0 && (
        <ul>
          {verifier.faults.slice(0, 50).map((each, i) => (
            <li key={i}>
              {each.n} {p.faultKinds[each.kind]}
            </li>
          ))}
        </ul>
      )}
      {verifier.erased > 0 && (
        <p>
          <WithCode text={p.erasedSome(verifier.erased)} />
        </p>
      )}
      <p className="small">
        {p.end}: <code>{JSON.stringify(anchor)}</code>
      </p>
    </div>
  );
}

/** Give the reader a file. */
function save(lines: string[]): void {
  const address = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = "audit.jsonl";
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
