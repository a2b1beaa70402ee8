// A page with CopilotKit and tokens that end: `esbuild copilotkit.jsx --bundle --format=esm --jsx=automatic`.

import { CopilotChat, CopilotKitProvider } from "@copilotkit/react-core/v2";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { tokens } from "./tokens.js";

const LOOK_MS = 500;
const query = new URLSearchParams(location.search);
const token = tokens();

/** The token, always a good one, and why there is none. */
function useToken() {
  const [current, setCurrent] = useState({});
  useEffect(() => {
    const look = () => token().then((text) => setCurrent((it) => (it.text === text ? it : { text })), (error) => setCurrent({ error }));
    void look();
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  return current;
}

function Page() {
  const { text, error } = useToken();
  const [times, setTimes] = useState(0);
  if (error) return <p role="alert">{error.message}</p>;
  if (!text) return <p>Signing in …</p>;
  const failed = ({ error, context }) => {
    // The server has ended a stream because its token has: the chat is made anew, and attaches to its thread.
    if (context?.runtimeErrorCode === "auth.expired") setTimes((it) => it + 1);
    else console.error(String(error));
  };
  return (
    <CopilotKitProvider runtimeUrl={query.get("url")} headers={{ Authorization: `Bearer ${text}` }} onError={failed}>
      <CopilotChat key={times} agentId={query.get("agent")} threadId={query.get("thread")} />
    </CopilotKitProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
