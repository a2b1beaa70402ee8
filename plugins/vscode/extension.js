// Starts `hai-flow lsp` and shows pictures of workflows. Everything else the language server does.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate(context) {
  const trusted = vscode.workspace.isTrusted;
  const [command, ...words] = trusted
    ? vscode.workspace.getConfiguration("haiFlow").get("command")
    : ["hai-flow", "lsp"];
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const run = { command, args: trusted ? words : [...words, "--no-import"], options: { cwd: folder } };
  client = new LanguageClient("hai-flow", "HAI Flow", { run, debug: run }, {
    documentSelector: [{ scheme: "file", pattern: "**/*.flow.{yaml,yml}" }],
  });
  context.subscriptions.push(vscode.commands.registerCommand("haiFlow.graph", showGraph));
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(`HAI Flow: ${command} does not start: pip install 'hai-flow[lsp]'. ${error.message}`);
  }
}

async function showGraph() {
  const uri = vscode.window.activeTextEditor?.document.uri.toString();
  if (!client || !uri) return;
  const { picture } = await client.sendRequest("haiFlow/graph", { uri, format: "svg" });
  if (!picture) {
    vscode.window.showInformationMessage("HAI Flow: this is no workflow without errors yet, so it has no picture.");
    return;
  }
  const panel = vscode.window.createWebviewPanel("haiFlowGraph", "Workflow", vscode.ViewColumn.Beside, {});
  const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
  panel.webview.html = `<meta http-equiv="Content-Security-Policy" content="${policy}">${picture}`;
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
