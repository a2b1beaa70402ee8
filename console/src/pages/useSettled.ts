// A value that changes no faster than who uses it can follow: a slider passes hundreds of places, a run makes hundreds of
// events in a second.

import { useEffect, useRef, useState } from "react";

/** The value as it was at most `ms` ago. */
export function useSettled<T>(value: T, ms: number): T {
  const [settled, setSettled] = useState(value);
  const last = useRef(0);
  const newest = useRef(value);
  newest.current = value;
  useEffect(() => {
    const wait = Math.max(0, last.current + ms - performance.now());
    const timer = setTimeout(() => {
      last.current = performance.now();
      setSettled(newest.current);
    }, wait);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
