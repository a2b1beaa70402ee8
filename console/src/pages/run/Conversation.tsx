// What was said, as a frontend shows it, with the calls and questions where they came.

import { useMemo } from "react";
import type { Json, Message, Pending, Snapshot } from "../../api/types.gen.ts";
import { isObject } from "../../logic/json.ts";
import { type LogEvent, type ToolCall, callsOf } from "../../logic/log.ts";
import { plainName } from "../../logic/seats.ts";
import { Go } from "../../parts/Go.tsx";
import { Text, Value } from "../../parts/Value.tsx";
import { clock } from "../../text/dates.ts";
import { useText } from "../../text/index.ts";

type Entry =
  | { kind: "message"; at: number; id: string; message: Message }
  | { kind: "call"; at: number; id: string; call: ToolCall }
  | { kind: "question"; at: number; id: string; pending: Pending };

const SHOWN = 300;

export function Conversation({ snapshot, events, past }: { snapshot: Snapshot; events: readonly LogEvent[]; past: boolean }) {
  const t = useText();
  const entries = useMemo(() => entriesOf(snapshot, events), [snapshot, events]);
  if (entries.length === 0) return <p className="quiet">{t.run.empty}</p>;
  return (
    <ol className="talk">
      {entries.slice(-SHOWN).map((entry) => (
        <Shown key={`${entry.kind} ${entry.id}`} entry={entry} past={past} />
      ))}
    </ol>
  );
}

function entriesOf(snapshot: Snapshot, events: readonly LogEvent[]): Entry[] {
  const asked = new Set(snapshot.pendings.map((each) => each.id));
  const found: Entry[] = [
    ...snapshot.messages.map((message): Entry => ({ kind: "message", id: message.id, at: time(message.at), message })),
    // A question is also a call; it is shown once.
    ...callsOf(events).filter((call) => !asked.has(call.id)).map((call): Entry => ({ kind: "call", id: call.id, at: call.at, call })),
    ...snapshot.pendings.map((pending): Entry => ({ kind: "question", id: pending.id, at: time(pending.opened_at), pending })),
  ];
  return found.map((entry, i) => ({ entry, i })).sort((a, b) => a.entry.at - b.entry.at || a.i - b.i).map(({ entry }) => entry);
}

function time(at: string): number {
  return new Date(at).getTime();
}

function Shown({ entry, past }: { entry: Entry; past: boolean }) {
  const t = useText();
  if (entry.kind === "question") {
    const { pending } = entry;
    const open = pending.status === "open";
    return (
      <li className="question">
        <div className="quiet small">
          {t.run.question} · <time>{clock(entry.at)}</time>
        </div>
        <b dir="auto">{(pending.title ?? pending.tool ?? t.inbox.untitled).slice(0, 500)}</b>
        <div>
          {open ? (
            past ? (
              <span className="tag warn">{t.runs.statuses.waiting}</span>
            ) : (
              <Go href={`/console/inbox/${encodeURIComponent(pending.id)}`}>{t.run.decide}</Go>
            )
          ) : (
            <span className="tag">
              {t.decision.decidedTitle[pending.status] ?? pending.status}
              {pending.decided_by && `: ${plainName(pending.decided_by)}`}
            </span>
          )}
        </div>
      </li>
    );
  }
  if (entry.kind === "call") {
    const { call } = entry;
    return (
      <li>
        <details>
          <summary>
            {t.run.toolCall}: {call.name}
          </summary>
          <Value value={parsed(call.args)} />
          {call.error !== null && <p className="note bad">{call.error.slice(0, 2000)}</p>}
          {call.result !== null && <Value value={parsed(call.result)} />}
        </details>
      </li>
    );
  }
  const { message } = entry;
  const mine = message.role === "user";
  return (
    <li className={mine ? "user" : ""}>
      <div className="quiet small">
        {mine ? t.run.you : message.role} · <time>{clock(entry.at)}</time>
      </div>
      <Content kind={message.kind} content={message.content} />
    </li>
  );
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

/** A text, a thought, or a structured output: each as what it is, what is not known as its value. */
function Content({ kind, content }: { kind: string; content: Json }) {
  const t = useText();
  if (kind === "thinking") {
    return (
      <details>
        <summary>{t.run.thinking}</summary>
        {typeof content === "string" ? <Text text={content} /> : <Value value={content} />}
      </details>
    );
  }
  const value = kind === "data" && typeof content === "string" ? parsed(content) : content;
  if (typeof value === "string") return <Text text={value} />;
  if (Array.isArray(value)) return value.slice(0, 50).map((part, i) => <Part key={i} part={part} />);
  return <Part part={value} />;
}

function Part({ part }: { part: Json }) {
  const t = useText();
  if (!isObject(part)) return <Value value={part} />;
  const inner = part["content"] ?? part["text"] ?? part["data"];
  switch (part["type"]) {
    case "text":
      return typeof inner === "string" ? <Text text={inner} /> : <Value value={inner} />;
    case "thinking":
      return <Content kind="thinking" content={inner ?? null} />;
    case "fold": {
      const data = isObject(inner) ? inner : part;
      const title = data["title"] ?? data["summary"] ?? data["name"];
      return (
        <details>
          <summary>{typeof title === "string" ? title.slice(0, 300) : t.app.more}</summary>
          <Value value={inner} />
        </details>
      );
    }
    default: {
      const { type, ...rest } = part;
      return (
        <>
          {typeof type === "string" && <span className="tag">{type.slice(0, 60)}</span>}
          <Value value={rest} />
        </>
      );
    }
  }
}
