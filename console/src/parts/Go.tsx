// Links between pages of the console. Where a router is there it takes them; else the browser does.

import { type MouseEvent, type ReactNode, createContext, useContext } from "react";
import { host } from "../host.ts";

/** Where a question has its place in the list. */
export const QUESTION = "/console/inbox/";

export const Going = createContext<((href: string) => void) | null>(null);

export function Go({ href, className, children }: { href: string; className?: string; children: ReactNode }) {
  const go = useContext(Going);
  if (!host.console) {
    // Of all places of the console only the questions are here, too.
    if (go === null || !href.startsWith(QUESTION)) return <>{children}</>;
    return (
      <button type="button" className="link" onClick={() => go(href)}>
        {children}
      </button>
    );
  }
  const follow = (event: MouseEvent): void => {
    if (go === null || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(href);
  };
  return (
    <a href={href} className={className} onClick={follow}>
      {children}
    </a>
  );
}
