// Links between pages of the console. Where a router is there it takes them; else the browser does.

import { type MouseEvent, type ReactNode, createContext, useContext } from "react";

export const Going = createContext<((href: string) => void) | null>(null);

export function Go({ href, className, children }: { href: string; className?: string; children: ReactNode }) {
  const go = useContext(Going);
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
