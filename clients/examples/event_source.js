// A thread's events over an EventSource, which can't send a header: each connection has a ticket of its own.

import { tokens } from "./tokens.js";

const NAMES = [
  "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "TOOL_CALL_START", "TOOL_CALL_ARGS",
  "TOOL_CALL_END", "TOOL_CALL_RESULT", "TEXT_MESSAGE_END", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT",
];
const PAUSE_MS = 1_000;

/** Follows the thread for ever: `hear` is called once for each event. */
export function follow(server, thread, hear, say = () => {}) {
  const token = tokens();
  let cursor;

  async function connect() {
    const headers = { Authorization: `Bearer ${await token()}` };
    const response = await fetch(`${server}/v1/tickets`, { method: "POST", headers });
    if (!response.ok) throw new Error(`no ticket (HTTP ${response.status})`);
    const { ticket } = await response.json();
    const query = new URLSearchParams({ ticket, ...(cursor && { after: cursor }) });
    const events = new EventSource(`${server}/api/v1/agent/runs/${encodeURIComponent(thread)}/events?${query}`);
    const leave = (why) => {
      events.close(); // by itself it would come back with the same ticket, which is used up
      again(why);
    };
    events.onopen = () => say("Following.");
    events.onerror = () => leave("The connection was lost.");
    for (const name of NAMES) {
      events.addEventListener(name, ({ data, lastEventId }) => {
        const event = JSON.parse(data);
        if (name === "RUN_ERROR" && event.code === "auth.expired") return leave("The token has ended.");
        cursor = lastEventId;
        hear(event);
      });
    }
  }

  function again(why) {
    say(`${why} Coming back.`);
    setTimeout(start, PAUSE_MS * (0.5 + Math.random()));
  }

  const start = () => connect().catch((error) => again(`${error.message}.`));
  void start();
}
