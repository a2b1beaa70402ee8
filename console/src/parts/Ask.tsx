// A question of the page itself, asked before something is done that can't be taken back.

import { type ReactNode, useEffect, useRef } from "react";
import type { Problem } from "../api/problems.ts";
import { useText } from "../text/index.ts";
import { focused } from "./focus.ts";
import { ProblemNote } from "./Problem.tsx";
import { isSilent } from "./useSending.ts";

export interface AskProps {
  title: string;
  yes: string;
  dangerous?: boolean;
  busy?: boolean;
  /** Whether yes can't be said yet; no always can. */
  notYet?: boolean;
  /** Whether there is something to fill in, which takes the focus. */
  form?: boolean;
  /** Why it was refused, or that no answer comes. */
  problem?: Problem | null;
  onYes(): void;
  onNo(): void;
  children?: ReactNode;
}

export function Ask({ title, yes, dangerous = false, busy = false, notYet = false, form = false, problem = null, onYes, onNo, children }: AskProps) {
  const t = useText();
  // What was sent can't be called back; but nobody is held where no answer comes.
  const held = busy && !isSilent(problem);
  const dialog = useRef<HTMLDialogElement>(null);
  const gone = useRef(false);
  useEffect(() => {
    const shown = dialog.current;
    gone.current = false;
    const before = focused();
    shown?.showModal();
    return () => {
      gone.current = true;
      shown?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="ask-title"
      onCancel={(event) => {
        event.preventDefault();
        if (!held) onNo();
      }}
      onClose={() => {
        // A browser closes it by itself where Escape is pressed twice: what it has to say would not be seen.
        if (gone.current || dialog.current?.open) return;
        if (held) dialog.current?.showModal();
        else onNo();
      }}
    >
      <div className="stack">
        <h2 id="ask-title">{title}</h2>
        {children}
        {problem && <ProblemNote problem={problem} />}
        <div className="actions">
          <button className={`${dangerous ? "bad" : "main"} ${busy ? "busy" : ""}`} disabled={busy || notYet} autoFocus={!form} onClick={onYes}>
            {yes}
          </button>
          <button disabled={held} onClick={onNo}>
            {t.decision.cancel}
          </button>
        </div>
      </div>
    </dialog>
  );
}
