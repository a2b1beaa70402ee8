// A run in a conversation, as any frontend has one: started over AG-UI, and its questions answered here.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { converse, get } from "../../api/client.ts";
import { Problem, asProblem } from "../../api/problems.ts";
import type { Json, Pending, Workflow } from "../../api/types.gen.ts";
import { holdsUnread, isObject } from "../../logic/json.ts";
import { beginning } from "../../logic/schema.ts";
import { type Called, type Entry, SILENT, type Talk, answered, told, unanswered } from "../../logic/talk.ts";
import { Form } from "../../parts/Form.tsx";
import { JsonInput } from "../../parts/JsonInput.tsx";
import { Go } from "../../parts/Go.tsx";
import { Markdown } from "../../parts/Markdown.tsx";
import { ProblemNote } from "../../parts/Problem.tsx";
import { useSending } from "../../parts/useSending.ts";
import { Text, Value } from "../../parts/Value.tsx";
import { findingText } from "../../text/index.ts";
import { useRunText } from "../../text/runs.ts";
import { usePageText } from "../../text/pages.ts";
import { Decision } from "../decide/Decision.tsx";
import { hasInput, inputFindings } from "./input.ts";

const SHOWN = 300;

interface Message {
  id: string;
  role: "user" | "tool";
  content: string;
  toolCallId?: string;
}

export function Chat({ workflow }: { workflow: Workflow }) {
  const t = useRunText();
  const p = usePageText().chat;
  const [thread, setThread] = useState(() => crypto.randomUUID());
  const [talk, setTalk] = useState<Talk>(SILENT);
  const [input, setInput] = useState<Json | undefined>(() => beginning(workflow.input));
  const [written, setWritten] = useState("");
  const { busy, problem, send, stop, say: refuse } = useSending();
  const begun = talk.status !== "new";
  const open = unanswered(talk);

  async function post(message: Message | null, forwarded: Json = {}): Promise<void> {
    stop();
    const body = {
      threadId: thread,
      runId: crypto.randomUUID(),
      messages: message === null ? [] : [message],
      tools: [],
      context: [],
      state: {},
      forwardedProps: forwarded,
    };
    const path = `/workflows/${encodeURIComponent(workflow.name)}/ag-ui`;
    await send((signal, heard) => {
      const hear = (event: unknown): void => {
        heard(); // the run may work for long now
        if (isObject(event)) setTalk((before) => told(before, event));
      };
      return converse(path, body, hear, signal);
    });
  }

  /** Whether it can be sent; where it can't, that is said and nothing is lost. */
  const isWhole = (value: Json | undefined): boolean => {
    const whole = !holdsUnread(value);
    refuse(whole ? null : new Problem(0, "draft.unread", ""));
    return whole;
  };
  const say = (): void => {
    if (!begun && !isWhole(input)) return;
    const message: Message = { id: crypto.randomUUID(), role: "user", content: written };
    const said: Entry[] = written.trim() === "" ? [] : [{ kind: "user", id: message.id, text: written }];
    setTalk((before) => ({ ...before, entries: [...before.entries, ...said] }));
    setWritten("");
    void post(message, begun ? {} : { input: input ?? {} });
  };
  const answer = (call: Called, result: Json): void => {
    if (!isWhole(result)) return;
    const content = JSON.stringify(result);
    setTalk((before) => answered(before, call.id, content));
    void post({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content });
  };
  const anew = (): void => {
    stop();
    refuse(null);
    setThread(crypto.randomUUID());
    setTalk(SILENT);
  };

  return (
    <div className="stack narrow">
      <p className="quiet">{p.hint}</p>
      <ol className="talk" aria-label={p.log} aria-live="polite">
        {talk.entries.slice(-SHOWN).map((each) => (
          <Shown key={each.id} entry={each} />
        ))}
      </ol>
      {open.map((each) => (
        <Question key={each.id} call={each} answer={(result) => answer(each, result)} decided={() => void post(null)} />
      ))}
      <p role="status" className="quiet">
        {busy ? p.running : talk.status === "waiting" ? p.waiting : talk.status === "ended" ? p.ended : ""}
      </p>
      {talk.status === "failed" && (
        <p className="note bad" role="alert">
          {p.failed}{t.app.colon}
          <Text text={findingText({ code: talk.code, message: talk.error })} />
        </p>
      )}
      {problem && <ProblemNote problem={problem} />}
      {!begun && hasInput(workflow.input) && (
        <section className="card">
          <Form of={`chat ${workflow.name}`} schema={workflow.input} value={input} onChange={setInput} findings={inputFindings(problem)} />
        </section>
      )}
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          say();
        }}
      >
        <input className="grow" aria-label={p.say} placeholder={p.say} maxLength={10_000} value={written} onInput={(event) => setWritten(event.currentTarget.value)} />
        <button className="main" disabled={busy || (begun && written.trim() === "")}>
          {begun ? p.send : p.begin}
        </button>
        {begun && (
          <button type="button" onClick={anew}>
            {p.again}
          </button>
        )}
      </form>
      {isObject(talk.state) && Object.keys(talk.state).length > 0 && (
        <details>
          <summary>{p.state}</summary>
          <Value value={talk.state} />
        </details>
      )}
      {begun && (
        <p className="small">
          <Go href={`/console/runs?thread=${encodeURIComponent(thread)}`}>{t.decision.toRun}</Go>
        </p>
      )}
    </div>
  );
}

function Shown({ entry }: { entry: Entry }) {
  const t = useRunText();
  const p = usePageText().chat;
  if (entry.kind === "call") {
    return (
      <li>
        <details>
          <summary>
            {t.run.toolCall}{t.app.colon}{entry.name.slice(0, 200)}
          </summary>
          <Value value={read(entry.args)} />
          {entry.result !== null && (
            <>
              <h3>{p.result}</h3>
              <Value value={read(entry.result)} />
            </>
          )}
        </details>
      </li>
    );
  }
  return (
    <li className={entry.kind === "user" ? "user" : ""}>
      {entry.kind === "thinking" && <div className="quiet small">{t.run.thinking}</div>}
      {entry.kind === "user" ? <Text text={entry.text} /> : <Markdown text={entry.text} top={3} />}
    </li>
  );
}

function read(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

interface QuestionProps {
  call: Called;
  answer(result: Json): void;
  decided(): void;
}

/** A call that waits: a tool of the frontend is answered by a form of its result; a question to people as everywhere. */
function Question({ call, answer, decided }: QuestionProps) {
  const p = usePageText().chat;
  const id = call.question ?? call.id;
  const found = useQuery({
    queryKey: ["asked", id],
    queryFn: ({ signal }) => get<Pending>(`/v1/pendings/${encodeURIComponent(id)}`, signal),
    retry: 2,
  });
  const [result, setResult] = useState<Json | undefined>();
  const pending = found.data;
  // A call that the run makes by itself, or asks about by another id that is told when it waits.
  if (call.question === undefined && asProblem(found.error).status === 404) return null;
  if (found.error) return <ProblemNote problem={asProblem(found.error)} again={() => void found.refetch()} />;
  if (!pending) return null;
  if (pending.kind !== "tool") {
    return (
      <section className="card">
        <Decision id={pending.id} keys={false} after={<button onClick={decided}>{p.begin}</button>} onDecided={decided} />
      </section>
    );
  }
  return (
    <form
      className="card stack"
      onSubmit={(event) => {
        event.preventDefault();
        answer(result ?? null);
      }}
    >
      <h2>{p.tool(call.name)}</h2>
      <Value value={read(call.args)} />
      {pending.schema !== null ? (
        <Form of={pending.id} schema={pending.schema} value={result} onChange={setResult} findings={[]} />
      ) : (
        <div className="field">
          <label htmlFor={`result-${call.id}`}>{p.result}</label>
          <JsonInput common={{ id: `result-${call.id}` }} value={result} onChange={setResult} />
        </div>
      )}
      <div>
        <button className="main">{p.answer}</button>
      </div>
    </form>
  );
}
