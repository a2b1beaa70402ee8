// A page with assistant-ui and tokens that end: `esbuild assistant_ui.jsx --bundle --format=esm --jsx=automatic`.

import { HttpAgent } from "@ag-ui/client";
import { AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import { useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { useMemo, useState } from "react";
import { createRoot } from "react-dom/client";
import { signing, tokens } from "./tokens.js";

const query = new URLSearchParams(location.search);
const [url, threadId] = [query.get("url"), query.get("thread")];
const signed = signing(tokens());

// What the thread is, the server tells: a run without a new message attaches.
const history = {
  load: async () => ({ messages: [], unstable_resume: true }),
  append: async () => {},
};

const Message = () => (
  <div>
    <MessagePrimitive.Parts />
  </div>
);

function Chat({ again }) {
  const agent = useMemo(() => {
    const made = new HttpAgent({ url, threadId, fetch: signed });
    made.subscribe({ onRunErrorEvent: ({ event }) => void (event.code === "auth.expired" && again()) });
    return made;
  }, []);
  const runtime = useAgUiRuntime({ agent, adapters: { history }, onError: (error) => console.warn(String(error)) });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Messages components={{ Message }} />
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

function Page() {
  const [times, setTimes] = useState(0);
  // When the server ends a stream because its token has, the chat is made anew, and attaches to its thread.
  return <Chat key={times} again={() => setTimes((it) => it + 1)} />;
}

createRoot(document.getElementById("root")).render(<Page />);
