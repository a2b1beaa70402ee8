"""The sentence of each command, so that `hai-flow --help` imports none of them: a test holds this equal to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MEANT: Final[Mapping[str, str]] = {
    "answer": "decide", "approve": "decide", "reject": "decide", "vote": "decide", "questions": "inbox",
    "log": "events", "logs": "events", "follow": "events", "watch": "events", "tail": "events", "history": "events",
    "list": "runs", "ls": "runs", "ps": "runs", "get": "show", "describe": "show", "inspect": "show",
    "start": "run", "exec": "run", "cancel": "stop", "abort": "stop", "kill": "terminate", "continue": "resume",
    "init": "new", "create": "new", "check": "validate", "lint": "validate", "format": "fmt", "draw": "graph",
    "deploy": "publish", "upload": "publish", "upgrade": "migrate", "server": "serve", "up": "dev", "login": "sign-in",
    "health": "doctor", "settings": "doctor", "config": "doctor", "workers": "worker --status",
    "export": "archive", "import": "restore", "retention": "prune", "cleanup": "prune", "delete": "prune",
    "erase": "forget", "users": "keys", "cron": "schedules", "event": "send",
}  # fmt: skip
"""The command for a word that other programs use."""

SENTENCES: Final[Mapping[str, str]] = {
    "dev": "Everything in one process: PostgreSQL, the API and a worker; workflows are loaded again when "
    "you save them.",
    "run": "Start a workflow, follow it and answer it here.",
    "validate": "Check workflows offline: every mistake at once, with file, line and column.",
    "test": "Run the tests of workflows: the real engine in memory, effects mocked, time passing only as "
    "the test says.",
    "new": "Begin a workflow: NAME.flow.yaml, and its tests beside it in NAME.test.yaml.",
    "fmt": "Format workflows: keys in order, bare expressions, quoted holes.",
    "graph": "Draw a workflow: text for Mermaid, or an SVG picture.",
    "schema": "The JSON Schema of workflows, for editors (`# yaml-language-server: $schema=FILE`).",
    "grammar": "The whole language on one page, for language models.",
    "skill": "Write the skill with which agents write workflows: a manual, the grammar, and patterns with tests.",
    "lsp": "The language server for editors, over standard input and output (docs/editors.md).",
    "mcp": "The MCP server over standard input and output, for clients that start one (docs/protocols/mcp.md).",
    "serve": "Serve the API and the console; `worker` processes over the same database perform the runs.",
    "worker": "Perform runs: claim the runs that are due, and call tools.",
    "migrate": "Bring the database to the schema of this release.",
    "cells": "Cells: schemas and databases that each hold everything of their tenants; without a command, their list.",
    "publish": "Publish workflows under the name and version that they declare.",
    "versions": "The versions of a workflow, the latest first.",
    "diff": "The changes of a version: steps that were added, removed, moved or edited.",
    "backtest": "Decide the recorded runs of a workflow again under another text, and report the differences.",
    "retire": "Take a version out of use: no run, child or fork begins with it any more.",
    "unretire": "Take a retired version back into use.",
    "runs": "List runs, newest first; `runs migrate` moves runs to another version of their workflow.",
    "show": "One run: its status, its steps and their times, the questions that it waits for, and commands "
    "to type next.",
    "events": "The events of a run; with --json one event a line.",
    "replay": "Replay a run's events at their original pace; nothing is performed.",
    "marks": "List the moments at which a run waited or a step began, and whether it can be forked there.",
    "changes": "The differences between two moments of a run: variables, steps and questions.",
    "inbox": "List the questions to you, the next deadline first, with the reason if you may not decide one.",
    "pendings": "List the open questions, newest first, with commands that answer them.",
    "decide": "Answer a question to people: approve or reject, fill in a form, or give a frontend tool's result.",
    "receipt": "Signed receipts of decisions.",
    "sign-in": "Print a link that signs a browser in to the console: once, within ten minutes.",
    "delegate": "Let somebody else decide for you for some time, with the roles and groups that you have now.",
    "absences": "People that are away on some days, and their delegates; without a command, the list of yours.",
    "delegations": "Who decides for whom, and until when; without a command, the list of yours.",
    "oversight": "How people decide approvals: how long they take, and what is approved, refused, edited or expired.",
    "canary": "Seeded questions that have to be refused; without a command, the list of them.",
    "rules": "Standing rules, which approve or refuse calls without asking; without a command, the list of them.",
    "chat": "Your accounts in chats, by which you decide there; without a command, the list of them.",
    "pause": "Pause a run: no new step starts; answers and timers are kept until `resume`.",
    "resume": "Resume a paused run.",
    "stop": "Stop a run: its running steps are cancelled and have some time to clean up.",
    "terminate": "End a run at once; results that come later are not recorded.",
    "retry": "Resume a failed run from the step that failed.",
    "skip": "Continue a run after a step that waits or has failed; the step counts as skipped, not as approved.",
    "rerun": "Repeat a run from one of its steps in a new run: a fork before that step.",
    "fork": "Continue from an earlier moment of a run in a new run; the thread's active run is stopped first.",
    "bulk": "Pause, resume, stop or retry the runs that match all options; without --expect only list them.",
    "jump": "Let time pass at once for the waits of a run: deadlines, escalations, timers.",
    "signal": "Send a run an event; it is kept until the run waits for it.",
    "send": "Send an event to all runs that wait for it, and to the workflows that it starts.",
    "freeze": "Prevent steps from beginning, in all runs or in some, within two seconds; effects in flight are "
    "finished.",
    "thaw": "End a freeze: the runs that it held continue.",
    "freezes": "List the active freezes with their reasons.",
    "schedules": "The schedules, which start runs by the clock; without a command, their list.",
    "files": "Upload and download files, which input and answers refer to.",
    "status": "Show the state of the deployment: database, servers, workers, queue, open runs, questions, "
    "messages, cells.",
    "doctor": "Check the databases of all cells, the identity and the limits as `serve` and `worker` would "
    "find them here.",
    "audit": "Who did what, and the proof that nobody changed it.",
    "forget": "Erase a person: a pseudonym replaces their id, and their texts outside of chains are removed.",
    "verify": "Check every run's integrity against its log.",
    "chaos": "Break a deployment on purpose, and see whether it keeps its promises.",
    "prune": "Merge the logs of ended runs, and archive and remove threads that ended long enough ago, by "
    "the file of retention.",
    "archive": "Write the threads that are due for removal into the archive, those of every cell.",
    "restore": "Bring archived threads back, as they were.",
    "recover": "Check whether a cell's database was restored to an earlier point, and list the runs that may "
    "repeat effects.",
    "keys": "API keys, with which programs and people call a server; without a command, their list.",
    "tenants": "Tenants, each with runs, workflows and keys of its own; without a command, their list.",
    "completion": "Print the script that completes commands, workflows, runs and questions in your shell.",
    "conformance": "Use an endpoint as real clients do, and report its faults.",
    "version": "The version of HAI Flow and of Python.",
}
