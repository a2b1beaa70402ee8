// What one has written and not sent yet. It outlives a reload and a sign-in; it is this tab's alone.

import { useCallback, useState } from "react";
import { host } from "../host.ts";

export function keptText(place: string): string | null {
  try {
    return host.storage().getItem(place);
  } catch {
    return null;
  }
}

export function keepText(place: string, text: string): void {
  try {
    host.storage().setItem(place, text);
  } catch {
    // The browser keeps nothing (it is full, or told so): the form itself still has it.
  }
}

export function dropText(place: string): void {
  try {
    host.storage().removeItem(place);
  } catch {
    // There is nothing, then.
  }
}

/** The value that was kept; null: none was, or none that can be read. */
export function kept<T>(place: string): T | null {
  const text = keptText(place);
  try {
    return text === null ? null : (JSON.parse(text) as T);
  } catch {
    return null;
  }
}

/** What a form holds, as `useState`; and what no longer keeps it, once it is sent or given up. */
export function useDraft<T>(name: string, begin: () => T): [T, (now: T) => void, () => void] {
  const place = `hai.form.${name}`;
  const [value, setValue] = useState<T>(() => kept<T>(place) ?? begin());
  const write = useCallback(
    (now: T) => {
      setValue(now);
      keepText(place, JSON.stringify(now));
    },
    [place],
  );
  return [value, write, () => dropText(place)];
}
