// A page with assistant-ui, as its documentation shows it: the runtime for AG-UI, a tool for people, approvals, interrupts.

import { HttpAgent } from "@ag-ui/client";
import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  ErrorPrimitive,
  makeAssistantTool,
  MessagePrimitive,
  ThreadPrimitive,
} from "@assistant-ui/react";
import { useAgUiInterrupts, useAgUiRuntime, useAgUiSubmitInterruptResponses } from "@assistant-ui/react-ag-ui";
import { useMemo } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);

// Whoever opens a page on a thread that exists asks what it is: a run without a new message.
const history = {
  load: async () => ({ messages: [], unstable_resume: true }),
  append: async () => {},
};

const ConfirmAction = makeAssistantTool({
  toolName: "confirmAction",
  type: "human",
  description: "Ask the user to confirm a dangerous action",
  parameters: { type: "object", properties: {} },
  render: ({ args, result, addResult }) =>
    result === undefined ? (
      <Choice
        about={JSON.stringify(args)}
        approve={() => addResult({ approved: true })}
        deny={() => addResult({ approved: false })}
      />
    ) : (
      <p>answered: {JSON.stringify(result)}</p>
    ),
});

function Choice({ about, approve, deny }) {
  return (
    <section>
      <code>{about}</code>
      <button onClick={approve}>Approve</button>
      <button onClick={deny}>Deny</button>
    </section>
  );
}

// A call of a tool of the server's, with its approval card while one is asked for.
const ServerTool = ({ toolName, args, result, approval, respondToApproval }) => (
  <div>
    <p>{`${toolName} ${JSON.stringify(args)}: ${JSON.stringify(result ?? null)}`}</p>
    {approval && approval.approved === undefined && approval.resolution === undefined && (
      <Choice
        about={toolName}
        approve={() => respondToApproval({ approved: true })}
        deny={() => respondToApproval({ approved: false })}
      />
    )}
  </div>
);

// What the thread waits for that is about no call: a call has its approval card.
function Interrupts() {
  const interrupts = useAgUiInterrupts().filter(({ reason }) => reason !== "tool_call");
  const submit = useAgUiSubmitInterruptResponses();
  const answer = (approved) =>
    submit(interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved } })));
  if (interrupts.length === 0) return null;
  const about = interrupts.map(({ message }) => message).join(" ");
  return <Choice about={about} approve={() => answer(true)} deny={() => answer(false)} />;
}

const Message = () => (
  <>
    <MessagePrimitive.Parts components={{ tools: { Fallback: ServerTool } }} />
    <MessagePrimitive.Error>
      <ErrorPrimitive.Root>
        <ErrorPrimitive.Message />
      </ErrorPrimitive.Root>
    </MessagePrimitive.Error>
  </>
);

function Page() {
  const agent = useMemo(() => new HttpAgent({ url: query.get("url"), threadId: query.get("thread") }), []);
  const runtime = useAgUiRuntime({
    agent,
    adapters: { history },
    autoCancelPendingToolCalls: query.get("typing") !== "keeps",
    onError: (error) => console.error(String(error)),
  });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      {query.get("tools") === "confirmAction" && <ConfirmAction />}
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Messages components={{ Message }} />
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input />
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
      <Interrupts />
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
