// The entries of a list of questions, and what decides several of them at once.

import { useState } from "react";
import { call } from "../../api/client.ts";
import { type Problem, problemIn } from "../../api/problems.ts";
import type { BulkOutcomes, InboxItem } from "../../api/types.gen.ts";
import { host } from "../../host.ts";
import { plainName } from "../../logic/seats.ts";
import { lineOf, workflowOf } from "../../logic/titles.ts";
import { Ask } from "../../parts/Ask.tsx";
import { Go } from "../../parts/Go.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { exactly, relative } from "../../text/dates.ts";
import { sentence, useText } from "../../text/index.ts";

const BULK = 100;

/** Whether the question is answered by one word: no form to fill in, no reason to give. */
export function isPlain(item: InboxItem): boolean {
  const reasons = item.needed?.["reasons"];
  return (
    item.may_decide && ["approve", "gate"].includes(item.kind) && item.schema === null && !(Array.isArray(reasons) && reasons.length > 0)
  );
}

interface RowProps {
  item: InboxItem;
  current: boolean;
  href: string;
  picked: boolean;
  now: number;
  pick(on: boolean): void;
}

export function Row({ item, current, href, picked, now, pick }: RowProps) {
  const t = useText();
  const title = item.title || t.inbox.untitled;
  const line = lineOf(item);
  return (
    <li className={current ? "current" : ""}>
      {isPlain(item) && (
        <label className="pick">
          <span className="hidden">{t.inbox.select(title)}</span>
          <input type="checkbox" checked={picked} onChange={(event) => pick(event.currentTarget.checked)} />
        </label>
      )}
      <div className="grow">
        <Go href={href}>
          <span className="row-top">
            <b dir="auto" title={title}>
              {title}
            </b>
            {item.deadline ? (
              <time className="small" dateTime={item.deadline} title={exactly(item.deadline)}>
                {t.inbox.due(relative(item.deadline, now))}
              </time>
            ) : (
              <span className="quiet small">{t.inbox.noDeadline}</span>
            )}
          </span>
          <span className="row-under quiet small" dir="auto">
            {item.claimed_by && <span className="tag warn">{t.inbox.claimed(plainName(item.claimed_by))}</span>}
            {item.nobody_decides && <span className="tag bad">{t.inbox.nobody}</span>}
            {!item.may_decide && <span className="tag">{item.on_behalf_of.length === 0 ? t.inbox.notYours : t.inbox.forWhom(item.on_behalf_of.map(plainName).join(t.app.comma))}</span>}
            <span>{t.inbox.from(workflowOf(item), plainName(item.started_by))}</span>
            {line !== "" && <span className="line-of">{line}</span>}
          </span>
        </Go>
      </div>
    </li>
  );
}

interface Failure {
  title: string;
  problem: Problem;
}

export function Bulk({ items, sent, clear }: { items: InboxItem[]; sent(): void; clear(): void }) {
  const t = useText();
  const [asking, setAsking] = useState<"approve" | "reject" | null>(null);
  const [done, setDone] = useState<{ decided: number; failed: Failure[] } | null>(null);
  const { busy, problem, send } = useSending();

  async function decide(decision: string): Promise<void> {
    const failed: Failure[] = [];
    let decided = 0;
    sent(); // those that are decided leave the list, maybe before the answer is here that tells of them
    await send(async () => {
      for (let from = 0; from < items.length; from += BULK) {
        const some = items.slice(from, from + BULK);
        const body = { items: some.map((each) => ({ id: each.id, decision, digest: each.digest })) };
        const outcomes = await call<BulkOutcomes>("POST", "/v1/inbox/decide", body);
        outcomes.items.forEach((each, i) => {
          if (each.pending !== null) host.see(each.pending, true);
          if (each.problem === null) decided += 1;
          else failed.push({ title: some[i]?.title || t.inbox.untitled, problem: problemIn(each.problem) });
        });
      }
    });
    setDone({ decided, failed });
    setAsking(null);
  }

  return (
    <div className="bar stack">
      <div role="status">
        {done && <p>{t.inbox.bulkDone(done.decided, done.failed.length)}</p>}
        {done && done.failed.length > 0 && (
          <ul>
            {done.failed.map((each, i) => (
              <li key={i}>
                <b>{each.title.slice(0, 200)}</b>: {sentence(t, each.problem)}
              </li>
            ))}
          </ul>
        )}
      </div>
      {problem && !asking && <ProblemNote problem={problem} />}
      <div className="row">
        {items.length > 0 && (
          <>
            <span>{t.inbox.selected(items.length)}</span>
            <button className="main" disabled={busy} onClick={() => setAsking("approve")}>
              {t.inbox.approveAll(items.length)}
            </button>
            <button className="bad" disabled={busy} onClick={() => setAsking("reject")}>
              {t.inbox.rejectAll(items.length)}
            </button>
          </>
        )}
        <button className="plain" onClick={clear}>
          {items.length > 0 ? t.inbox.clear : t.app.close}
        </button>
      </div>
      {asking && (
        <Ask
          title={t.inbox.bulkTitle[asking](items.length)}
          yes={t.decision.confirmSend(t.decision.options[asking] ?? asking)}
          dangerous={asking === "reject"}
          busy={busy}
          problem={busy ? problem : null}
          onYes={() => void decide(asking)}
          onNo={() => setAsking(null)}
        >
          <ol className="bulk">
            {items.map((each) => (
              <li key={each.id} dir="auto">
                <b>{each.title || t.inbox.untitled}</b>
                {lineOf(each) !== "" && <div className="quiet small">{lineOf(each)}</div>}
              </li>
            ))}
          </ol>
          <p>
            {t.inbox.bulkNote} {t.decision.final}
          </p>
        </Ask>
      )}
    </div>
  );
}
