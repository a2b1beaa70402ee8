// A conversation over a WebSocket (AUI), which can't send a header in a browser: each connection has a ticket of its own.

import { tokens } from "./tokens.js";

const PAUSE_MS = 1_000;

/** Says `message` into the session and follows it for ever. `show` is called with all messages, whenever they change. */
export function converse(server, workflow, session, message, show, say = () => {}) {
  const token = tokens();
  const messages = new Map(); // by id, in the order in which they came
  let unsaid = message;

  const handlers = {
    aui_messages_snapshot: ({ messages: all }) => {
      messages.clear();
      for (const { id, role, content } of all) messages.set(id, { role, content });
    },
    aui_text_message_start: ({ message_id, role }) => messages.set(message_id, { role, content: "" }),
    aui_text_delta: ({ message_id, delta }) => {
      messages.get(message_id).content += delta;
    },
    aui_run_started: () => (unsaid = undefined), // it has arrived
  };

  async function connect() {
    const headers = { Authorization: `Bearer ${await token()}` };
    const response = await fetch(`${server}/v1/tickets`, { method: "POST", headers });
    if (!response.ok) throw new Error(`no ticket (HTTP ${response.status})`);
    const { ticket } = await response.json();
    const socket = new WebSocket(`${server.replace(/^http/, "ws")}/api/aui/ws/${workflow}?ticket=${ticket}`);
    const params = { session_id: session, ...(unsaid !== undefined && { message: unsaid }) };
    socket.onopen = () => {
      say("Following.");
      socket.send(JSON.stringify({ type: "params", data: params }));
    };
    socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      handlers[event.type]?.(event);
      show([...messages.values()]);
    };
    socket.onclose = ({ code }) => {
      if (code === 1000) say("Done.");
      else again(code === 4401 ? "The token has ended." : `The connection was lost (${code}).`);
    };
  }

  // The session is joined again: it begins with what it is now, so nothing is lost and nothing is doubled.
  function again(why) {
    say(`${why} Coming back.`);
    setTimeout(start, PAUSE_MS * (0.5 + Math.random()));
  }

  const start = () => connect().catch((error) => again(`${error.message}.`));
  void start();
}
