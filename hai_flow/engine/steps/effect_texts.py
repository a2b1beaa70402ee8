"""What people are told of an effect: its name, its class, and the title and the message of the gate in front of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from hai_flow import values
from hai_flow.definition.plan import CALL_EFFECT, Call, FrontendTool, Http, HttpTool, PythonTool, Run, Step
from hai_flow.definition.tools.effect_classes import Effect, effect_of_method
from hai_flow.engine.draft import Draft, Raised
from hai_flow.engine.events import AskedAnew, PendingOpened
from hai_flow.values import Json


def describe_effect(step: Step, args: Json) -> str:
    """The effect of the step, in the words of the document."""
    match step.verb:
        case Call(tool, function):
            return f"{tool.name}.{function}" if function else tool.name
        case Http():
            return f"{str(args.get('method', '')).upper()} {args.get('url', '')}".strip() or "http"
        case Run(workflow):
            return f"run {workflow}"
        case _:
            return step.verb_name


def classify_effect(draft: Draft, step: Step, args: Json) -> Effect | None:
    """The class of the effect; None for a child run, whose own steps have classes. Of an agent's call it is the one
    that the model's answer has recorded, which knows what a server says."""
    match step.verb:
        case Http():
            return effect_of_method(str(args.get("method", "")).upper())
        case Call() if step.of_agent:
            return draft.render(CALL_EFFECT, step) or "write"
        case Call(HttpTool(effect=None, service=service), function) if service is not None:
            with suppress(KeyError, ValueError):
                return service.find(function).effect
            return "write"
        case Call(FrontendTool(effect=effect)):
            return effect
        case Call(tool):
            return tool.effect or "write"
        case _:
            return None


def find_title(step: Step) -> str | None:
    """The title that the workflow gives the tool behind the gate, or the document of a service the operation (OpenAPI
    `summary`)."""
    match step.verb:
        case Call(PythonTool(title=title)):
            return title
        case Call(HttpTool(service=service), function) if service is not None:
            with suppress(KeyError, ValueError):
                return service.find(function).summary or None
    return None


def introduce(anew: AskedAnew | None, message: str | None) -> str | None:
    """The message of a gate, behind a sentence on why it is asked anew."""
    if anew is None:
        return message
    words = f"{_WHY[anew.why]} So the approval before counts no more; nothing was done."
    return words if message is None else f"{words}\n\n{message}"


_WHY: Final = {
    "still": "Asked anew: what the workflow demands of the moment of the call (`still`) was not so any more. Another "
    "approval lets the call begin only if it is so then.",
    "unknown": "Asked anew: nobody could tell whether what the workflow demands of the moment of the call (`still`) is "
    "so. Another approval lets the call begin only if it is so then.",
    "source": "Asked anew: the code of the tool is another one than when it was approved.",
    "description": "Asked anew: the server describes its function otherwise than when it was approved.",
}


def texts_with(draft: Draft, step: Step, opened: PendingOpened, args: str) -> dict[str, str | None]:
    """The title and the message of the gate `opened` with other arguments. A title that can't be made of these is the
    name of the call, for the one before may name a value that is gone; such a message stays."""
    gate = step.approval
    if gate is None:
        return {"title": opened.title, "message": opened.message}
    roots = {"args": values.loads(args)}
    title, message = f"{describe_effect(step, roots['args'])}?", opened.message
    with suppress(Raised):
        title = title if gate.title is None else draft.text(gate.title, step, **roots)
    with suppress(Raised):
        message = message if gate.message is None else introduce(opened.anew, draft.text(gate.message, step, **roots))
    return {"title": title, "message": message}
