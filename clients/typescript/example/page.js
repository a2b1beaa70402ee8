// A chat with a HAI agent: no bundler, no framework. Build the package first (npm run build).
import { HttpAgent, HttpProblem, documentsOf, isKnownOutput, textOf } from "../dist/index.js";

const place = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);

/** With `?token=/token`: where this page's own backend gives it a token (clients/examples/backend.py is such a one). */
async function token() {
  const response = await fetch(new URL(asked.get("token"), location.origin).pathname, { method: "POST" });
  if (!response.ok) throw new Error(`The backend gave no token (HTTP ${response.status}). Sign in again.`);
  return (await response.json()).token;
}

// The thread is named in the address, so that a reload, or another person with the link, comes back to it.
location.hash ||= `thread-${Date.now()}`;
const agent = new HttpAgent({
  url: asked.get("url") ?? "http://localhost:8000/awp",
  threadId: location.hash.slice(1),
  transport: asked.get("transport") ?? "sse",
  ...(asked.has("token") && { key: token }),
});

// The page can put these questions to a person, so the server asks them as calls.
const tools = [
  { name: "confirmAction", description: "Asks the user to confirm an action", parameters: { type: "object" } },
  { name: "requestInput", description: "Asks the user to fill in a form", parameters: { type: "object" } },
];

agent.subscribe({
  onMessagesChanged: show,
  onStateChanged: show,
  onCustomEvent: show,
  onStepStartedEvent: ({ event }) => say(`${event.stepName} …`),
  onReconnecting: ({ attempt, delayMs, reason }) => say(`${reason.message}; attempt ${attempt} in ${delayMs} ms`),
  onRunErrorEvent: ({ event }) => say(`The run failed: ${event.message}`),
});

/** Runs, or attaches; says what came of it. */
async function follow(run) {
  say("Running …");
  show();
  try {
    const { error, aborted, status, pendings } = await run({ tools });
    if (aborted) say("No longer following; the run goes on.");
    else if (!error) say(status ? `The run is ${status.status}.` : pendings.length > 0 ? "Waiting for you." : "Done.");
  } catch (error) {
    say(error.message);
    if (error instanceof HttpProblem) place("text").value = error.takenBack.map(textOf).join("\n");
  }
  show();
}

place("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = place("text").value;
  if (agent.isRunning || content === "") return;
  place("text").value = "";
  agent.addMessage({ id: `msg_${Date.now()}`, role: "user", content });
  void follow((parameters) => agent.runAgent(parameters));
});
place("abort").addEventListener("click", () => agent.abortRun());
place("connect").addEventListener("click", () => {
  if (!agent.isRunning) void follow((parameters) => agent.connectAgent(parameters));
});

function answer(give) {
  if (agent.isRunning) return;
  give();
  void follow((parameters) => agent.runAgent(parameters));
}

// --- showing what is: everything is drawn anew, as text only ------------------------------------------------------

function show() {
  place("url").textContent = agent.url;
  place("thread").textContent = agent.threadId;
  place("state").textContent = JSON.stringify(agent.state, null, 2);
  place("messages").replaceChildren(...agent.messages.filter(isShown).map(messageElement));
  place("pendings").replaceChildren(...agent.pendings.map(pendingElement));
}

/** Results of tools are for the agent; what an attempt began and another one said again is marked as aborted. */
const isShown = ({ role, extra }) => role !== "tool" && !extra?.aborted;

function messageElement(message) {
  const content = message.role === "assistant" ? outputElements(message.content ?? "") : [element("p", textOf(message))];
  const calls = (message.toolCalls ?? []).map((call) => element("pre", `${call.function.name}(${call.function.arguments})`));
  return element("div", "", { className: message.role }, [...content, ...calls]);
}

function outputElements(content) {
  const elements = [];
  for (const { output } of documentsOf(content)) {
    const last = elements.at(-1);
    if (!isKnownOutput(output)) {
      elements.push(element("pre", JSON.stringify(output, null, 2)));
    } else if (output.type === "text") {
      if (last?.tagName === "P") last.append(output.content);
      else elements.push(element("p", output.content));
    } else if (output.type === "thinking") {
      if (last?.className === "thinking") last.append(output.data.content);
      else elements.push(element("details", output.data.content, { className: "thinking" }, [summary("Thinking")]));
    } else {
      elements.push(element("pre", `${output.type}: ${JSON.stringify(output.data)}`));
    }
  }
  return elements;
}

function pendingElement(pending) {
  const question = [
    element("strong", pending.title ?? pending.tool ?? "A question"),
    element("p", pending.message ?? ""),
    element("pre", [pending.evidence, pending.arguments, pending.form].filter(isSomething).map(written).join("\n")),
  ];
  const button = (name, give) => element("button", name, { onclick: () => answer(give) });
  const fields = fieldElements(pending);
  const given = () => (fields.length > 0 ? { values: valuesOf(pending, fields) } : {});
  const others = (pending.options ?? []).filter((option) => option !== "approve" && option !== "reject");
  const buttons = {
    approve: () => [
      button("Approve", () => agent.approve(pending.id, given())),
      button("Reject", () => agent.reject(pending.id, { reason: "rejected on the page" })),
      ...others.map((option) => button(option, () => agent.decide(pending.id, option, given()))),
    ],
    ask: () => [jsonAnswer(pending)],
    tool: () => [jsonAnswer(pending)],
  };
  return element("div", "", { className: "pending" }, [...question, ...fields, ...buttons[pending.kind]()]);
}

/** What an approval asks for besides: a field for each text or number of its form. */
function fieldElements({ kind, form }) {
  if (kind !== "approve") return [];
  return Object.entries(form?.properties ?? {}).map(([name, { type, title, default: value }]) => {
    const input = element("input", "", { name, type: type === "number" ? "number" : "text", step: "any", value: value ?? "" });
    return element("label", "", {}, [`${title ?? name} `, input]);
  });
}

/** The fields that were filled in. */
function valuesOf({ form }, fields) {
  const filled = fields.map((field) => field.querySelector("input")).filter(({ value }) => value !== "");
  const read = ({ name, value }) => (["number", "integer"].includes(form.properties[name].type) ? Number(value) : value);
  return Object.fromEntries(filled.map((input) => [input.name, read(input)]));
}

const isSomething = (value) => value !== undefined && written(value) !== "{}";
const written = (value) => JSON.stringify(value, null, 2);

/** What a real page would have a form or a function for. */
function jsonAnswer(pending) {
  const input = element("input", "", { placeholder: "The answer as JSON" });
  const give = () => answer(() => agent.addToolResult(pending.id, input.value));
  const onsubmit = (event) => (event.preventDefault(), give());
  return element("form", "", { onsubmit }, [input, element("button", "Answer")]);
}

function element(name, text, properties = {}, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children, text);
  return made;
}

function summary(text) {
  return element("summary", text);
}

function say(text) {
  place("status").textContent = text;
}

// What the thread is now, and live if something is under way.
void follow((parameters) => agent.connectAgent(parameters));
