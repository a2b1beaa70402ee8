/** How often and when a client comes back whose connection broke. */

export interface ReconnectOptions {
  /** How many times in a row, before the run is given up here. 0: never. */
  attemptsMax: number;
  /** The longest first wait; each next one may be twice as long. */
  delayMs: number;
  /** No wait is longer than this. */
  delayMsMax: number;
}

export const RECONNECT: ReconnectOptions = { attemptsMax: 10, delayMs: 250, delayMsMax: 10_000 };

/** A connection that lasted so long has worked: what breaks after it is counted anew. */
export const STABLE_MS = 5_000;

/**
 * How long to wait before attempt `attempt` (from 1). At random between half and all of it, so that not everybody comes
 * back to a server that was restarted at the same moment; never sooner than the server asks for.
 */
export function delayOf(
  options: ReconnectOptions,
  attempt: number,
  retryAfterMs = 0,
  random: () => number = Math.random,
): number {
  const most = Math.min(options.delayMsMax, options.delayMs * 2 ** (attempt - 1));
  return Math.max(retryAfterMs, Math.round(most * (0.5 + random() / 2)));
}

/** Waits; an abort ends it early. */
export function sleep(delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, delayMs);
    signal.addEventListener("abort", done);
    if (signal.aborted) done();
  });
}
