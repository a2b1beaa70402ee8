// Whether what is shown is live, said to eyes and ears.

import type { Connection } from "../api/client.ts";
import { useText } from "../text/index.ts";

export function Status({ connection }: { connection: Connection }) {
  const t = useText();
  const tone = connection === "live" ? "good" : connection === "lost" ? "bad" : "";
  return (
    <span className={`tag ${tone} status`} role="status">
      {connection === "lost" ? t.connection.lost : t.connection[connection]}
    </span>
  );
}
