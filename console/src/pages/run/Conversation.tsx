// What was said, as a frontend shows it, with the calls, questions and handovers where they came.

import { memo, useMemo, useState } from "react";
import type { Json, Message, Pending, Snapshot } from "../../api/types.gen.ts";
import { same } from "../../logic/json.ts";
import type { Handover, ToolCall } from "../../logic/record.ts";
import { plainName, ruleOf } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { Tree } from "../../parts/Tree.tsx";
import { clock, exactly } from "../../text/dates.ts";
import { useRunText } from "../../text/runs.ts";
import { Content, foldOf, parsed } from "./outputs.tsx";

type Entry =
  | { kind: "message"; at: number; id: string; message: Message }
  | { kind: "call"; at: number; id: string; call: ToolCall }
  | { kind: "handover"; at: number; id: string; handover: Handover }
  | { kind: "question"; at: number; id: string; pending: Pending };

const SHOWN = 100;
const FOLDS_MAX = 8;

interface ConversationProps {
  snapshot: Snapshot;
  calls: readonly ToolCall[];
  handovers: readonly Handover[];
  past: boolean;
  /** Whether nothing more will be said. */
  over: boolean;
  onStep(path: string): void;
}

export function Conversation({ snapshot, calls, handovers, past, over, onStep }: ConversationProps) {
  const t = useRunText();
  const [shown, setShown] = useState(SHOWN);
  const entries = useMemo(() => entriesOf(snapshot, calls, handovers), [snapshot, calls, handovers]);
  if (entries.length === 0) return <p className="quiet">{over ? t.run.silent : t.run.empty}</p>;
  return (
    <>
      {entries.length > shown && (
        <button className="plain" onClick={() => setShown(shown + 5 * SHOWN)}>
          {t.run.earlierEntries(entries.length - shown)}
        </button>
      )}
      <ol className="talk">
        {foldedOf(entries.slice(-shown)).map((each) => (
          <Folded key={each.key} item={each} past={past} onStep={onStep} />
        ))}
      </ol>
    </>
  );
}

function entriesOf(snapshot: Snapshot, calls: readonly ToolCall[], handovers: readonly Handover[]): Entry[] {
  const asked = new Set(snapshot.pendings.map((each) => each.id));
  const found: Entry[] = [
    ...snapshot.messages.map((message): Entry => ({ kind: "message", id: message.id, at: Date.parse(message.at), message })),
    // A question is also a call; it is shown once.
    ...calls.filter((call) => !asked.has(call.id)).map((call): Entry => ({ kind: "call", id: call.id, at: call.at, call })),
    ...handovers.map((handover): Entry => ({ kind: "handover", id: String(handover.seq), at: handover.at, handover })),
    ...snapshot.pendings.map((pending): Entry => ({ kind: "question", id: pending.id, at: Date.parse(pending.opened_at), pending })),
  ];
  return found.map((entry, i) => ({ entry, i })).sort((a, b) => a.entry.at - b.entry.at || a.i - b.i).map(({ entry }) => entry);
}

/** An entry, or those between the beginning and the end of a part that folds. */
type Item = { key: string; entry: Entry } | { key: string; title: string; closed: boolean; items: Item[] };

function foldedOf(entries: readonly Entry[]): Item[] {
  const top: Item[] = [];
  const open: Item[][] = [];
  for (const entry of entries) {
    const key = `${entry.kind} ${entry.id}`;
    const fold = entry.kind === "message" ? foldOf(entry.message) : null;
    const here = open.at(-1) ?? top;
    if (fold === null) here.push({ key, entry });
    else if (fold.position === "end") open.pop();
    else {
      const items: Item[] = [];
      here.push({ key, title: fold.title, closed: fold.closed, items });
      if (open.length < FOLDS_MAX) open.push(items);
    }
  }
  return top;
}

function Folded({ item, past, onStep }: { item: Item; past: boolean; onStep(path: string): void }) {
  const t = useRunText();
  if ("entry" in item) return <Shown entry={item.entry} past={past} onStep={onStep} />;
  return (
    <li className="folded">
      <details open={!item.closed}>
        <summary>{item.title.slice(0, 300) || t.app.more}</summary>
        <ol className="talk">
          {item.items.map((each) => (
            <Folded key={each.key} item={each} past={past} onStep={onStep} />
          ))}
        </ol>
      </details>
    </li>
  );
}

interface ShownProps {
  entry: Entry;
  past: boolean;
  onStep(path: string): void;
}

/** Most of what was said at one moment was said at the next one: it is shown as it stands. */
const Shown = memo(ShownAnew, (before, now) => before.past === now.past && before.onStep === now.onStep && same(before.entry as unknown as Json, now.entry as unknown as Json));

function ShownAnew({ entry, past, onStep }: ShownProps) {
  switch (entry.kind) {
    case "question":
      return <Question pending={entry.pending} at={entry.at} past={past} onStep={onStep} />;
    case "call":
      return <Call call={entry.call} onStep={onStep} />;
    case "handover":
      return <HandedOver handover={entry.handover} onStep={onStep} />;
    default:
      return <Said message={entry.message} at={entry.at} />;
  }
}

function Time({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={exactly(at)}>
      {clock(at)}
    </time>
  );
}

function StepLink({ path, onStep }: { path: string; onStep(path: string): void }) {
  return path === "" ? null : (
    <button className="plain slim" onClick={() => onStep(path)}>
      {path.slice(0, 120)}
    </button>
  );
}

function Question({ pending, at, past, onStep }: { pending: Pending; at: number; past: boolean; onStep(path: string): void }) {
  const t = useRunText();
  const open = pending.status === "open";
  const rule = ruleOf(pending);
  return (
    <li className="question">
      <div className="quiet small">
        {t.run.question} · <Time at={at} /> <StepLink path={pending.path} onStep={onStep} />
      </div>
      <b dir="auto">{pending.title || t.inbox.untitled}</b>
      <div>
        {open ? (
          past ? (
            <span className="tag warn">{t.runs.statuses.waiting}</span>
          ) : (
            <Go href={`/console/inbox/${encodeURIComponent(pending.id)}`}>{t.run.decide}</Go>
          )
        ) : (
          <span className="tag">
            {rule === null ? (t.decision.decidedTitle[pending.status] ?? pending.status) : t.decision.byRule(rule, pending.status === "approve")}
            {pending.decided_by && t.app.colon + plainName(pending.decided_by)}
          </span>
        )}
      </div>
    </li>
  );
}

function Call({ call, onStep }: { call: ToolCall; onStep(path: string): void }) {
  const t = useRunText();
  return (
    <li className="call">
      <details>
        <summary>
          <span className="grow">
            {t.run.toolCall}{t.app.colon}<b>{call.name.slice(0, 200)}</b>
          </span>
          {call.error !== null ? (
            <span className="tag bad">{t.runs.statuses.failed}</span>
          ) : call.result === null ? (
            <span className="tag accent">{t.runs.statuses.running}</span>
          ) : null}
        </summary>
        <h3>{t.step.args}</h3>
        <Tree value={parsed(call.args)} />
        {call.error !== null && <p className="note bad">{call.error.slice(0, 2000)}</p>}
        {call.result !== null && (
          <>
            <h3>{t.run.output}</h3>
            <Tree value={parsed(call.result)} />
          </>
        )}
        <StepLink path={call.path} onStep={onStep} />
      </details>
    </li>
  );
}

function HandedOver({ handover, onStep }: { handover: Handover; onStep(path: string): void }) {
  const t = useRunText();
  return (
    <li className="handover">
      <div className="quiet small">
        {t.outputs.handover} · <Time at={handover.at} /> <StepLink path={handover.path} onStep={onStep} />
      </div>
      <div>
        <b>{handover.from.slice(0, 120)}</b> → <b>{handover.to.slice(0, 120)}</b>{" "}
        <span className={`tag ${handover.ended ? "good" : "accent"}`}>{t.runs.statuses[handover.ended ? "finished" : "running"]}</span>
      </div>
      {handover.task !== null && <Tree value={handover.task} open={1} />}
      {handover.runId !== null && <Go href={`/console/runs/${encodeURIComponent(handover.runId)}`}>{t.outputs.itsRun}</Go>}
    </li>
  );
}

function Said({ message, at }: { message: Message; at: number }) {
  const t = useRunText();
  const mine = message.role === "user";
  return (
    <li className={mine ? "user" : message.kind === "thinking" ? "thought" : ""}>
      <div className="quiet small">
        {mine ? t.run.you : message.role === "assistant" ? t.run.assistant : message.role.slice(0, 60)} · <Time at={at} /> {message.open && <span className="tag accent">{t.run.speaking}</span>}
      </div>
      <Content kind={message.kind} content={message.content} />
    </li>
  );
}
