// An event of a run's log, as REST shows it.

import type { Json } from "../api/types.gen.ts";

export interface LogEvent {
  seq: number;
  type: string;
  at: number;
  turn: number;
  path?: string;
  [key: string]: Json | undefined;
}
