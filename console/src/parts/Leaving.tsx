// What was decided and is not sent yet: it says so, and takes it back.

import { useEffect, useState } from "react";
import { type Leaving, takeBack, useLeaving } from "../api/leaving.ts";
import { host } from "../host.ts";
import { useText } from "../text/index.ts";
import { Go } from "./Go.tsx";
import { ProblemNote } from "./Problem.tsx";

/** The seconds until it is sent. */
function useLeft(due: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 250);
    return () => clearInterval(timer);
  }, [due]);
  return Math.max(0, Math.ceil((due - now) / 1000));
}

export function Undo({ leaving, focus = false }: { leaving: Leaving; focus?: boolean }) {
  const t = useText();
  const left = useLeft(leaving.due);
  return (
    <div className="row undo">
      <span className="grow">
        <b>{leaving.label}</b>{" "}
        <span aria-live={leaving.held ? "polite" : "off"}>
          {leaving.held ? t.undo.held : leaving.state === "sending" || left === 0 ? t.undo.sending : t.undo.in(left)}
        </span>
      </span>
      <button autoFocus={focus} disabled={leaving.state !== "waiting"} onClick={() => takeBack(leaving.id)}>
        {t.undo.take} <kbd className="quiet only-mouse">z</kbd>
      </button>
    </div>
  );
}

/** Those of other questions than the one on the page: below all pages. */
export function Undos({ but }: { but?: string | null }) {
  const t = useText();
  const others = useLeaving().filter((each) => each.id !== but);
  useEffect(() => {
    const pressed = (event: Event): void => {
      if (!(event instanceof KeyboardEvent) || event.key !== "z" || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.target instanceof HTMLElement && (event.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName))) return;
      const last = others.filter((each) => each.state === "waiting").at(-1);
      if (last) takeBack(last.id);
    };
    const place = host.keys();
    place.addEventListener("keydown", pressed);
    return () => place.removeEventListener("keydown", pressed);
  });
  return (
    <div className="toasts" role="status">
      {others.map((each) => (
        <div key={each.id} className={`toast ${each.state === "refused" ? "bad" : ""}`}>
          <span className="slim" dir="auto">
            {each.title}
          </span>
          {each.state === "refused" ? (
            <>
              {each.problem && <ProblemNote problem={each.problem} />}
              <div className="row">
                <Go href={`/console/inbox/${encodeURIComponent(each.id)}`}>{t.undo.look}</Go>
                <button onClick={() => takeBack(each.id)}>{t.app.close}</button>
              </div>
            </>
          ) : (
            <Undo leaving={each} />
          )}
        </div>
      ))}
    </div>
  );
}
