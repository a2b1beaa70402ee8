// A question of the page itself, asked before something is done that can't be taken back.

import { type ReactNode, useEffect, useRef } from "react";
import { useText } from "../text/index.ts";

export interface AskProps {
  title: string;
  yes: string;
  dangerous?: boolean;
  busy?: boolean;
  /** Whether yes can't be said yet; no always can. */
  notYet?: boolean;
  onYes(): void;
  onNo(): void;
  children?: ReactNode;
}

export function Ask({ title, yes, dangerous = false, busy = false, notYet = false, onYes, onNo, children }: AskProps) {
  const t = useText();
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    const before = document.activeElement;
    shown?.showModal();
    return () => {
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
        onNo();
      }}
    >
      <div className="stack">
        <h2 id="ask-title">{title}</h2>
        {children}
        <div className="actions">
          <button className={dangerous ? "bad" : "main"} disabled={busy || notYet} autoFocus onClick={onYes}>
            {yes}
          </button>
          <button disabled={busy} onClick={onNo}>
            {t.decision.cancel}
          </button>
        </div>
      </div>
    </dialog>
  );
}
