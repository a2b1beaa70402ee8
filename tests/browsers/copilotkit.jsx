// A page with CopilotKit, as its documentation shows it: a runtime URL (ours), a chat, a tool for people, interrupts.

import {
  CopilotChat,
  CopilotKitProvider,
  defineToolCallRenderer,
  useFrontendTool,
  useHumanInTheLoop,
  useInterrupt,
} from "@copilotkit/react-core/v2";
import { useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const query = new URLSearchParams(location.search);
const agentId = query.get("agent");

function Choice({ about, approve, deny }) {
  return (
    <section>
      <code>{about}</code>
      <button onClick={approve}>Approve</button>
      <button onClick={deny}>Deny</button>
    </section>
  );
}

function ConfirmAction() {
  useHumanInTheLoop({
    name: "confirmAction",
    description: "Ask the user to confirm a dangerous action",
    parameters: z.object({}).passthrough(),
    render: ({ args, status, respond, result }) =>
      status === "executing" ? (
        <Choice
          about={JSON.stringify(args)}
          approve={() => respond({ approved: true })}
          deny={() => respond({ approved: false })}
        />
      ) : (
        <p>{`${status}: ${result ?? ""}`}</p>
      ),
  });
  return null;
}

// One card for each question; they are answered together, when the last one is.
function Cards({ interrupts, resolve, cancel }) {
  const [answered, setAnswered] = useState([]);
  const answer = (id, give) => {
    setAnswered([...answered, id]);
    give();
  };
  return interrupts
    .filter(({ id }) => !answered.includes(id))
    .map(({ id, message }) => (
      <Choice
        key={id}
        about={message ?? ""}
        approve={() => answer(id, () => resolve({ approved: true }, id))}
        deny={() => answer(id, () => cancel(id))}
      />
    ));
}

function Interrupts() {
  useInterrupt({ agentId, render: (props) => <Cards {...props} /> });
  return null;
}

// A tool of the page that is only shown a call, and asks for no run behind it.
function Haikus() {
  const [haikus, setHaikus] = useState([]);
  useFrontendTool({
    name: "generate_haiku",
    description: "Show a haiku",
    parameters: z.object({ english: z.array(z.string()) }).passthrough(),
    followUp: false,
    handler: async ({ english }) => {
      setHaikus((before) => [...before, english[0]]);
      return "Haiku generated!";
    },
  });
  return <p>{`${haikus.length} haikus: ${haikus.join(" ")}`}</p>;
}

// The card of every call that the page has no component of its own for.
const card = defineToolCallRenderer({
  name: "*",
  render: ({ name, status, result }) => <p>{`card ${name} ${status}: ${result ?? ""}`}</p>,
});

createRoot(document.getElementById("root")).render(
  <CopilotKitProvider
    runtimeUrl={query.get("url")}
    renderToolCalls={[card]}
    onError={({ error }) => console.error(String(error))}
  >
    {query.get("tools") === "confirmAction" ? <ConfirmAction /> : <Interrupts />}
    {query.get("tools") === "generate_haiku" && <Haikus />}
    <CopilotChat agentId={agentId} threadId={query.get("thread")} />
  </CopilotKitProvider>,
);
