// Numbers as they were written: 99.00 stays 99.00, and 12345678901234567890 keeps all of its digits. What JSON.parse makes
// of them is a float; where that reads otherwise, the text is kept beside the object or list that holds it.

const kept = new WeakMap<object, Map<string, string>>();

/** The value of a JSON text, which remembers how its numbers were written. */
export function parseExactly(text: string): unknown {
  const remember = function (this: object, key: string, value: unknown, context?: { source?: string }): unknown {
    const source = context?.source; // older browsers give none: there a number is shown as they read it
    if (typeof value === "number" && source !== undefined && source !== String(value)) {
      const mine = kept.get(this) ?? new Map<string, string>();
      kept.set(this, mine.set(key, source));
    }
    return value;
  };
  return JSON.parse(text, remember as (this: unknown, key: string, value: unknown) => unknown);
}

/** The number at `key` of `holder`, as it was written. */
export function numberText(holder: object | undefined, key: string | number, value: number): string {
  return (holder && kept.get(holder)?.get(String(key))) ?? String(value);
}

const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?$/;

/** The exact sum of decimal numbers; null: one of them is none that is written so. */
export function sumOf(texts: readonly string[]): string | null {
  const parts = texts.map((each) => DECIMAL.exec(each));
  if (parts.length === 0 || parts.some((each) => each === null)) return null;
  const digits = Math.max(...parts.map((each) => each?.[3]?.length ?? 0));
  let sum = 0n;
  for (const each of parts) sum += BigInt(`${each?.[1]}${each?.[2]}${(each?.[3] ?? "").padEnd(digits, "0")}`);
  const written = String(sum < 0n ? -sum : sum).padStart(digits + 1, "0");
  const whole = digits === 0 ? written : `${written.slice(0, -digits)}.${written.slice(-digits)}`;
  return sum < 0n ? `-${whole}` : whole;
}
