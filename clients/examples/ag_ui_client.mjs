// @ag-ui/client with tokens that end: node ag_ui_client.mjs URL THREAD TOKENS MESSAGE prints the conversation.
//
// In a page it is the same; there `tokens()` needs no address.

import { HttpAgent } from "@ag-ui/client";
import { signing, tokens } from "./tokens.js";

const [url, threadId, address, message] = process.argv.slice(2);
const agent = new HttpAgent({ url, threadId, fetch: signing(tokens(address)) });

/** Runs to the end of the turn. When a token ends before that, it comes back with the next one. */
async function run() {
  for (let expired = true; expired; ) {
    expired = false;
    // From the second time on nothing is new: it is told the thread as it is, and then what comes.
    await agent.runAgent({}, {
      onRunErrorEvent: ({ event }) => {
        expired = event.code === "auth.expired";
      },
    });
    if (expired) console.error("the token has ended; coming back");
  }
}

agent.addMessage({ id: crypto.randomUUID(), role: "user", content: message });
await run();
for (const { role, content } of agent.messages) console.log(`${role}: ${content}`);
