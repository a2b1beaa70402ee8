// Where the focus goes when what had it is gone: who uses a keyboard goes on from there.

import { useEffect, useRef } from "react";

/** What has the focus, also within the tree of an element. */
export function focused(): Element | null {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  return at;
}

function back(to: Element | null): void {
  const takes = to instanceof HTMLElement || to instanceof SVGElement;
  if (document.activeElement === document.body && takes && to.isConnected) to.focus();
}

/** As long as this is shown something else has the focus; then who had it before has it again. */
export function useReturn(): void {
  useEffect(() => {
    const before = focused();
    return () => back(before);
  }, []);
}

/** A button that can't be pressed meanwhile loses the focus; it has it again afterwards. */
export function useKeptFocus(busy: boolean): () => void {
  const before = useRef<Element | null>(null);
  useEffect(() => {
    // In a question of the page the button means something else by then, and who holds the key down has not read it.
    if (!busy && before.current?.closest("dialog") === null) back(before.current);
    if (!busy) before.current = null;
  }, [busy]);
  return () => void (before.current = focused());
}
