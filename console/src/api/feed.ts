// What lists show, live: the server tells again of a topic whenever its first page is otherwise.

import { useEffect, useRef, useState } from "react";
import { type Connection, follow } from "./client.ts";

export type Topic = "runs" | "workflows" | "schedules";

interface Told<T> {
  items?: T[];
  changed?: T[];
  gone?: string[];
}

/** Calls `onNews` with each telling of the topic but the first. `query` narrows it, as the API takes it. */
export function useFeed<T>(topic: Topic, query: string, onNews: (changed: T[]) => void): Connection {
  const [connection, setConnection] = useState<Connection>("connecting");
  const newest = useRef(onNews);
  newest.current = onNews;
  useEffect(() => {
    let first = true;
    return follow(`/v1/feed?topic=${topic}${query && `&${query}`}`, {
      onState: (state) => setConnection(state),
      onEvent: (name, data) => {
        if (name !== topic) return;
        const told = data as Told<T>;
        if (!first) newest.current(told.changed ?? told.items ?? []);
        first = false;
      },
    });
  }, [topic, query]);
  return connection;
}
