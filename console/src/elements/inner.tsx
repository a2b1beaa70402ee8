// What an element shows: the page of one question, or a list of those that wait for the reader.

import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { type Root, createRoot } from "react-dom/client";
import { onSignedOut, whoAmI } from "../api/client.ts";
import { restart, useInbox } from "../api/inbox.ts";
import { takeBackAll } from "../api/leaving.ts";
import { useNow } from "../api/now.ts";
import { Problem, asProblem } from "../api/problems.ts";
import type { Session } from "../api/types.gen.ts";
import { SessionContext } from "../context.ts";
import { Decision, isTyping } from "../pages/decide/Decision.tsx";
import { Bulk, Row, isPlain } from "../pages/inbox/Items.tsx";
import { Boundary } from "../parts/Boundary.tsx";
import { Going, QUESTION } from "../parts/Go.tsx";
import { Undos } from "../parts/Leaving.tsx";
import { ProblemNote } from "../parts/Problem.tsx";
import { Status } from "../parts/Status.tsx";
import { followLanguage, useText } from "../text/index.ts";
import { ask, dropToken, element, forget, host, leave, setToken } from "./host.ts";

export type Kind = "approval" | "inbox";

interface Reader {
  session: Session | null;
  /** Why nobody is known to read, or no longer. */
  problem: Problem | null;
}

let reader: Reader = { session: null, problem: null };
const listeners = new Set<() => void>();
let turn = 0;

function set(now: Reader): void {
  reader = now;
  for (const each of listeners) each();
}

async function prove(): Promise<void> {
  const mine = ++turn;
  try {
    const session = await whoAmI();
    if (mine !== turn) return;
    if (reader.session !== null && reader.session.principal !== session.principal) drop();
    set({ session, problem: null });
    restart();
  } catch (error) {
    if (mine === turn) set({ ...reader, problem: asProblem(error) });
    throw error;
  }
}

/** Nothing of one reader is left to the next. */
function drop(): void {
  takeBackAll();
  forget();
}

/** Asks in the name of this token, or of nobody. */
export function use(token: string | null): void {
  setToken(token, prove);
}

/** The reader has gone: nothing is asked any more. */
export function close(): void {
  turn += 1;
  drop();
  dropToken();
  set({ session: null, problem: new Problem(401, "auth.missing", "") });
}

onSignedOut(() => set({ ...reader, problem: new Problem(401, "auth.expired", "") }));

function useReader(): Reader {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    () => reader,
  );
}

let root: Root | null = null;

/** Shows it, or shows it otherwise. */
export function show(kind: Kind, pending: string | null): void {
  root ??= createRoot(element.place);
  followLanguage();
  root.render(
    <Boundary>
      <Page kind={kind} pending={pending} />
    </Boundary>,
  );
}

/** Ends all that is open, and sends what was decided. What is written stays. */
export function stop(): void {
  leave();
  root?.unmount();
  root = null;
}

/** Sends what was decided: the reader leaves. */
export { leave };

function Page({ kind, pending }: { kind: Kind; pending: string | null }) {
  const t = useText();
  const { session, problem } = useReader();
  const again = (): void => ask(prove);
  return (
    <div className="stack">
      {problem !== null && (problem.status === 401 ? <Waiting /> : <ProblemNote problem={problem} again={again} />)}
      {session === null && problem === null && <p role="status">{t.app.loading}</p>}
      {session !== null && (
        <SessionContext.Provider value={session} key={session.principal}>
          {kind === "inbox" ? <Several /> : pending !== null && <One id={pending} />}
        </SessionContext.Provider>
      )}
    </div>
  );
}

/** The page around has to say who reads. */
function Waiting() {
  const t = useText();
  return (
    <p className="note warn" role="status">
      {t.element.needed}
    </p>
  );
}

function Lost() {
  const { connection, problem } = useInbox();
  const isNews = connection === "lost" && problem?.status !== 403 && problem?.status !== 401;
  return isNews ? <Status connection={connection} /> : null;
}

function One({ id }: { id: string }) {
  return (
    <>
      <Lost />
      <Decision id={id} focus={false} />
      <Undos but={id} />
    </>
  );
}

function Several() {
  const t = useText();
  const now = useNow();
  const { items, full, problem } = useInbox();
  const [chosen, setChosen] = useState<string | null>(null);
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const [sent, setSent] = useState(false);
  const list = useRef<HTMLElement>(null);
  const close = (): void => {
    const before = chosen;
    setChosen(null);
    // Who uses a keyboard goes on where the question was chosen.
    requestAnimationFrame(() => {
      const links = [...(list.current?.querySelectorAll<HTMLElement>("button.link") ?? [])];
      links[Math.max(0, (items ?? []).findIndex((each) => each.id === before))]?.focus();
    });
  };
  useEffect(() => {
    const pressed = (event: Event): void => {
      if (!(event instanceof KeyboardEvent) || event.key !== "Escape" || isTyping(event.target)) return;
      if (chosen !== null && element.root.querySelector("dialog[open]") === null) close();
    };
    const place = host.keys();
    place.addEventListener("keydown", pressed);
    return () => place.removeEventListener("keydown", pressed);
  });
  const mine = (items ?? []).filter((each) => each.may_decide || each.on_behalf_of.length > 0);
  const plain = mine.filter((each) => picked.has(each.id) && isPlain(each));
  const next = mine.find((each) => each.id !== chosen);
  return (
    <Going.Provider value={(href) => setChosen(decodeURIComponent(href.slice(QUESTION.length)))}>
      <div className={`split ${chosen === null ? "none" : "one"}`}>
        <section className="list" ref={list} aria-label={t.inbox.title}>
          <Lost />
          {problem !== null && problem.status === 403 && <ProblemNote problem={problem} />}
          <p role="status" className="quiet">
            {items === null ? problem === null && t.app.loading : items.length === 0 ? t.inbox.empty : t.inbox.count(mine.length, full)}
          </p>
          <ul className="items">
            {(items ?? []).map((each) => (
              <Row
                key={each.id}
                item={each}
                current={each.id === chosen}
                href={hrefOf(each.id)}
                picked={picked.has(each.id)}
                now={now}
                pick={(on) => setPicked(new Set(on ? [...picked, each.id] : [...picked].filter((other) => other !== each.id)))}
              />
            ))}
          </ul>
          {(plain.length > 0 || sent) && (
            <Bulk
              items={plain}
              sent={() => setSent(true)}
              clear={() => {
                setPicked(new Set());
                setSent(false);
              }}
            />
          )}
        </section>
        <div className="card">
          {chosen === null ? (
            <p className="quiet">{t.inbox.choose}</p>
          ) : (
            <>
              <button className="plain" onClick={close}>
                ← {t.inbox.title}
              </button>
              <Decision
                id={chosen}
                after={
                  next && (
                    <button className="main" onClick={() => setChosen(next.id)}>
                      {t.decision.next}
                    </button>
                  )
                }
              />
            </>
          )}
        </div>
      </div>
      <Undos but={chosen} />
    </Going.Provider>
  );
}

const hrefOf = (id: string): string => QUESTION + encodeURIComponent(id);
