import assert from "node:assert/strict";
import test from "node:test";
import type { Json } from "../api/types.gen.ts";
import { SILENT, answered, told, unanswered } from "./talk.ts";

const after = (...events: Record<string, Json>[]) => events.reduce(told, SILENT);

test("pieces of a message become one text", () => {
  const talk = after(
    { type: "RUN_STARTED" },
    { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hel" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "lo" },
    { type: "TEXT_MESSAGE_END", messageId: "m" },
    { type: "RUN_FINISHED" },
  );
  assert.deepEqual(talk.entries, [{ kind: "assistant", id: "m", text: "Hello" }]);
  assert.equal(talk.status, "ended");
});

test("a question about a call has an id of its own, and one about nothing that was told is asked all the same", () => {
  const asked = after(
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "mail.send" },
    { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "RUN_FINISHED", outcome: { type: "interrupt", interrupts: [{ id: "q", toolCallId: "c" }, { id: "r", message: "Sure?" }, "odd", {}] } },
  );
  assert.equal(asked.status, "waiting");
  assert.deepEqual(unanswered(asked).map((each) => [each.id, each.question, each.name]), [["c", "q", "mail.send"], ["r", "r", "Sure?"]]);
  assert.equal(unanswered(answered(asked, "c", "sent")).length, 1);
});

test("a call that nobody has answered is waited for", () => {
  const asked = after(
    { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "confirm" },
    { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"n":1}' },
    { type: "TOOL_CALL_END", toolCallId: "c" },
    { type: "RUN_FINISHED" },
  );
  assert.equal(asked.status, "waiting");
  assert.deepEqual(unanswered(asked).map((each) => [each.name, each.args]), [["confirm", '{"n":1}']]);
  assert.deepEqual(unanswered(answered(asked, "c", "true")), []);
});

test("a snapshot of messages repeats nothing", () => {
  const snapshot = {
    type: "MESSAGES_SNAPSHOT",
    messages: [
      { id: "m", role: "assistant", content: "Hello", toolCalls: [{ id: "c", function: { name: "confirm", arguments: "{}" } }] },
      { id: "r", role: "tool", toolCallId: "c", content: "true" },
    ],
  };
  const talk = after(snapshot, snapshot);
  assert.deepEqual(talk.entries.map((each) => each.id), ["m", "c"]);
  assert.deepEqual(unanswered(talk), []);
});

test("what is not known changes nothing", () => {
  assert.equal(told(SILENT, { type: "SOMETHING_NEW" }), SILENT);
});
