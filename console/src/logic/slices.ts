// Long work in slices: between two of them the browser shows what has come and takes what is typed.

/** How many items one slice takes. Of events that is a few milliseconds of work, and on a busy machine still far from 100. */
export const SLICE = 250;

/**
 * Does `work` with all items, in their order, at most SLICE at a time. Ends early where `gone` says that nobody waits for it.
 * Returns whether all of it was done.
 */
export async function inSlices<T>(items: readonly T[], work: (slice: readonly T[]) => void, gone: () => boolean): Promise<boolean> {
  for (let from = 0; from < items.length; from += SLICE) {
    if (from > 0) await pause();
    if (gone()) return false;
    work(items.slice(from, from + SLICE));
  }
  return true;
}

/** Lets the browser do what else it has to do: a task, because between promises it does nothing. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}
