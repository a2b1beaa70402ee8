/// <reference types="vite/client" />

// The function that the build makes of src/elements/inner.tsx: each call evaluates its modules anew.
declare module "#inner" {
  export function load(given: import("./elements/host.ts").Element): typeof import("./elements/inner.tsx");
}
