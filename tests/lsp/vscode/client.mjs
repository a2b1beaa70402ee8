// An editor over Microsoft's own libraries: opens a file, waits for findings, asks for completion, and ends.
// node client.mjs COMMAND ARGUMENTS... < {"uri", "text", "line", "character", "root"}
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { text as all } from "node:stream/consumers";

const require = createRequire(import.meta.url);
const rpc = require("vscode-jsonrpc/node.js");
const lsp = require("vscode-languageserver-protocol/node.js");

const asked = JSON.parse(await all(process.stdin));
const [command, ...words] = process.argv.slice(2);
const server = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"], cwd: asked.cwd });
const line = rpc.createMessageConnection(
  new rpc.StreamMessageReader(server.stdout),
  new rpc.StreamMessageWriter(server.stdin),
);
let told = () => {};
const findings = () => new Promise((resolve) => (told = resolve));
line.onNotification(lsp.PublishDiagnosticsNotification.type, ({ diagnostics }) => told(diagnostics));
line.listen();
const { capabilities } = await line.sendRequest(lsp.InitializeRequest.type, {
  processId: process.pid,
  rootUri: asked.root,
  capabilities: { general: { positionEncodings: ["utf-16"] } },
});
await line.sendNotification(lsp.InitializedNotification.type, {});
const opened = findings();
await line.sendNotification(lsp.DidOpenTextDocumentNotification.type, {
  textDocument: { uri: asked.uri, languageId: "yaml", version: 1, text: asked.text },
});
const diagnostics = await opened;
const { items } = await line.sendRequest(lsp.CompletionRequest.type, {
  textDocument: { uri: asked.uri },
  position: { line: asked.line, character: asked.character },
});
const texts = [];
for (const [index, text] of (asked.texts ?? []).entries()) {
  const changed = findings();
  await line.sendNotification(lsp.DidChangeTextDocumentNotification.type, {
    textDocument: { uri: asked.uri, version: index + 2 },
    contentChanges: [{ text }],
  });
  texts.push((await changed).map((each) => each.data));
}
await line.sendRequest(lsp.ShutdownRequest.type);
await line.sendNotification(lsp.ExitNotification.type);
const code = await new Promise((resolve) => server.on("exit", resolve));
console.log(JSON.stringify({ capabilities: Object.keys(capabilities), diagnostics, labels: items.map((each) => each.label), texts, code }));
