/**
 * The page of the HAI document (section 4.1), against this client: its imports, its subscriber and its reading of what was
 * said, as they are written there. The stream is what its builders and its sample server send.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { HttpAgent } from "hai-client";
import type { AgentSubscriber } from "hai-client/dist/client/agent/subscriber";

import { serve, streams } from "./server.ts";

interface Shown {
  id: string | undefined;
  role: string | undefined;
  contents: any[];
}

/** `parseJsonString` and `updateDialogueMessages` of the document. */
function parseJsonString(jsonString: unknown): any[] {
  if (!jsonString || typeof jsonString !== "string") throw new Error("输入必须是有效的字符串");
  return JSON.parse(`[${jsonString.replace(/}{/g, "},{")}]`);
}

function updateDialogueMessages(eventData: any, dialogueMessages: Shown[]): void {
  const { messages } = eventData;
  const newAssistantMessage = messages[messages.length - 1];
  const { id, role, content } = newAssistantMessage || {};
  const contents = parseJsonString(content);
  const newDialogueMessage = dialogueMessages.find((message) => message.id === id);
  if (newDialogueMessage) newDialogueMessage.contents = contents;
  else dialogueMessages.push({ id, role, contents });
}

const said = (output: object, blockId?: string) => ({
  type: "BUSINESS_DATA_CONTENT",
  messageId: "msgId-001",
  delta: JSON.stringify({ output, ...(blockId && { blockId }), layout: { x: 0 } }),
  timestamp: 1725811200000,
});

test("the document's own page shows all that its own server says", async (context) => {
  const at = { timestamp: 1725811200000 };
  const edge = { messageId: "msgId-001", role: "assistant", ...at };
  const { url, requests } = await serve(
    context,
    streams(
      { type: "RUN_STARTED", ...edge },
      { type: "AGENT_COLLABORATIVE_MESSAGE_START", from: "USER", to: "Agent", messageId: "msgId-001", ...at },
      {
        type: "AGENT_COLLABORATIVE_MESSAGE_CONTENT",
        delta: JSON.stringify({ task: { id: "plan-task", name: "动态规划" } }),
        messageId: "msgId-001",
        ...at,
      },
      { type: "AGENT_COLLABORATIVE_MESSAGE_END", messageId: "msgId-001", ...at },
      { type: "STEP_STARTED", stepName: "智能处理" },
      { type: "BUSINESS_DATA_START", ...edge },
      said({ type: "thinking", data: { content: "…", elapsed: 10, thinking: true, collapse: true } }, "block-1"),
      said({ type: "fold", data: { title: "Steps", fold: false, position: "start" } }),
      said({ type: "text", content: "HAI是一套事件驱动的" }),
      { type: "BUSINESS_DATA_END", ...edge },
      { type: "STEP_FINISHED", stepName: "智能处理" },
      { type: "RUN_FINISHED", ...edge },
    ),
  );
  const initialMessages = [{ id: "msg-1", role: "user" as const, content: "介绍下HAI" }];
  const requestParam = { url, initialMessages };
  const agent = new HttpAgent(requestParam);
  const dialogueMessages: Shown[] = [];
  const heard: string[] = [];
  const complaints = context.mock.method(console, "error", () => {});
  const subscriber: AgentSubscriber = {
    onRunStartedEvent: () => void heard.push("RunStarted"),
    onStepStartedEvent: () => void heard.push("StepStarted"),
    onBusinessDataContentEvent: (eventData) => updateDialogueMessages(eventData, dialogueMessages),
    onBusinessDataEndEvent: (eventData) => updateDialogueMessages(eventData, dialogueMessages),
    onAgentCollaborativeMessageEndEvent: (eventData) => void heard.push(JSON.parse(eventData.textMessageBuffer).task.name),
    onStepFinishedEvent: () => void heard.push("StepFinished"),
    onRunFinishedEvent: () => void heard.push("RunFinished"),
  };
  agent.subscribe(subscriber);
  await agent.runAgent();
  assert.deepEqual(heard, ["RunStarted", "动态规划", "StepStarted", "StepFinished", "RunFinished"]);
  assert.deepEqual(requests[0]?.input.messages, initialMessages);
  const [shown] = dialogueMessages.filter(({ id }) => id === "msgId-001");
  assert.deepEqual(
    shown?.contents.map(({ output }) => output.type),
    ["thinking", "fold", "text"],
  );
  // Before its first delta a message is empty, which the document's code refuses: once, and nobody else is harmed.
  assert.ok(complaints.mock.callCount() <= 1);
});
