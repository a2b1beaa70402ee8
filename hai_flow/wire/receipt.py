"""A receipt: what was asked, who decided it and how, and what was done with it, as one signed document.

It is a function of the run's log, so there is one receipt of a question however often it is asked for, whatever process
gives it, and whatever was killed in between. What may be personal (who, which words, which arguments) stands in it as
a salted digest; beside the signed part are the texts that this reader may see. So the signed part is the same for every
reader, and holds when a text is taken out later.

The salt of a text is made of the text and the deployment's key: equal values have equal digests, so anybody can see
that the arguments that were decided are those with which the call was made, and who has one text can try out no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec
import rfc8785

from hai_flow import values
from hai_flow.definition.paths import rename_path
from hai_flow.engine import events as e
from hai_flow.engine.state.state import RunState
from hai_flow.primitives import instants
from hai_flow.values import Json

FORM: Final = 1
_ENDS: Final = (e.StepFinished, e.StepFailed, e.StepStopped, e.StepSkipped)

Salt = Callable[[str], str]


class ReceiptRecorder:
    """Reads a run's log and keeps what concerns one question, `pending_id`."""

    def __init__(self, pending_id: str, salt: Salt) -> None:
        self._id = pending_id
        self._salt = salt
        self._texts: dict[str, dict[str, str]] = {}
        self._requester: dict[str, str] | None = None
        self._question: dict[str, Any] | None = None
        self._votes: list[dict[str, Any]] = []
        self._edits: list[dict[str, Any]] = []
        self._escalations: list[dict[str, Any]] = []
        self._moves: list[dict[str, Any]] = []
        self._picks: list[dict[str, Any]] = []
        self._decision: dict[str, Any] | None = None
        self._executions: list[dict[str, Any]] = []
        self._superseded: dict[str, Any] | None = None
        self._signed: frozenset[str] = frozenset()
        self._path = ""
        self._effect = False
        self._done = False

    @property
    def exists(self) -> bool:
        """Whether the run has asked this question."""
        return self._question is not None

    @property
    def decided(self) -> bool:
        """Whether the question is closed."""
        return self._decision is not None

    @property
    def settled(self) -> bool:
        """Whether nothing follows the decision any more: there is no call behind it, or it has ended."""
        return self.decided and (not self._effect or self._done)

    def see(self, event: e.Event, shown: e.Event, state: RunState) -> None:
        """Go on behind an event of the log. `shown` is the event as the reader may see it, `state` the run after it."""
        match event:
            case e.RunStarted():
                self._requester = self._disclose(event.requester, getattr(shown, "requester", None))
            case e.PendingOpened() if event.id == self._id:
                self._open(event, shown, state)
            case e.PendingOpened() if self._executions and event.path == self._path and event.kind in ("ask", "doubt"):
                outcome = "asked" if event.kind == "ask" else "in_doubt"  # unless somebody settles it
                self._executions[-1] |= {"ended_at": _time(event.at), "outcome": outcome}
            case e.PendingOpened(kind="gate") if event.path == self._path and self.exists:
                self._effect = False  # the step asks anew: what it does from here on is another question's
                if event.anew is not None and event.anew.after == self._id:
                    self._supersede(event, event.anew)
            case e.Forked():
                self._fork(event, shown)
            case e.Migrated() if self.exists:
                self._path = rename_path(self._path, event.paths)
            case e.PendingRestamped() if event.id == self._id:
                digest = self._disclose(event.digest, getattr(shown, "digest", None))
                self._moves.append({"at": _time(event.at), "workflow": _describe_workflow(state), "digest": digest})
            case e.PeoplePicked() if event.id == self._id:
                people = self._disclose_each(event.people, getattr(shown, "people", ()))
                self._picks.append({"at": _time(event.at), "people": people})
            case e.PendingEdited() | e.PendingEscalated() | e.VoteCast() if event.id == self._id:
                self._go_on(event, shown)
            case e.PendingDecided() | e.PendingVoided() if event.id == self._id:
                self._close(event, shown, state)
            case e.AttemptStarted() if self._effect and event.path == self._path:
                self._begin(event.attempt, event.at, state)
            case e.ToolCallStarted(executor="frontend") if self._effect and event.path == self._path:
                if not self._executions:  # else it is the argument of an attempt that grows
                    self._begin(1, event.at, state)
            case _ if self._effect and isinstance(event, _ENDS) and event.path == self._path:
                self._end(event, shown)
            case e.StepRetried(held=True) if self._effect and event.path == self._path and self._executions:
                self._executions.pop()  # nothing of it has happened
            case e.StepRetried() if self._effect and event.path == self._path and self._executions:
                self._executions[-1] |= {"ended_at": _time(event.at), "outcome": "failed", "error": event.error.code}
            case e.StepUndone() if self._executions and event.path == self._path:
                self._executions[-1]["undone_at"] = _time(event.at)
            case e.RunFinished() | e.RunFailed() | e.RunStopped():
                self._done = True
            case _:
                pass

    def payload(self, run: RunState, log: Mapping[str, Json], audit: Mapping[str, Json] | None) -> bytes:
        """The signed part, as RFC 8785 writes it. `log` is the log as the receipt has read it, `audit` the seal of the
        record of the last vote; None: nobody voted."""
        content = {
            "form": FORM,
            "run": run.run_id,
            "requester": self._requester,
            "question": self._question,
            "edits": self._edits,
            "escalations": self._escalations,
            **({"moves": self._moves} if self._moves else {}),
            **({"picks": self._picks} if self._picks else {}),
            "votes": self._votes,
            "decision": self._decision,
            "executed": self._executions,
            "superseded": self._superseded,
            "log": dict(log),
            "audit": None if audit is None else dict(audit),
        }
        self._signed = frozenset(_list_digests(content))
        return rfc8785.dumps(content)

    def document(self, token: str) -> str:
        """The receipt as a file: the signed part, and the texts of it that the reader may see, by their digests."""
        return _file({"receipt": token, "texts": {key: self._texts[key] for key in self._signed & set(self._texts)}})

    def _open(self, event: e.PendingOpened, shown: e.Event, state: RunState) -> None:
        visible = (
            shown if isinstance(shown, e.PendingOpened) else msgspec.structs.replace(event, evidence=None, args=None)
        )
        self._path = event.path
        self._question = {
            "id": event.id,
            "kind": event.kind,
            "path": event.path,
            "seq": state.seq,
            "at": _time(event.at),
            "workflow": _describe_workflow(state),
            "tool": event.tool,
            "effect": event.effect,
            "title": self._disclose(event.title, visible.title),
            "message": self._disclose(event.message, visible.message),
            "arguments": self._disclose(canonical(event.args), canonical(visible.args)),
            "evidence": self._disclose(canonical(event.evidence), canonical(visible.evidence)),
            "form": self._disclose(_canonical_text(event.schema), _canonical_text(visible.schema)),
            "options": list(event.options),
            "policy": _sha(event.policy),
            "digest": self._disclose(event.digest, visible.digest),
        }

    def _go_on(self, event: e.PendingEdited | e.PendingEscalated | e.VoteCast, shown: e.Event) -> None:
        if isinstance(event, e.PendingEscalated):
            self._escalations.append({"at": _time(event.began), "policy": _sha(event.policy)})
        elif isinstance(event, e.PendingEdited):
            arguments = self._disclose(canonical(event.args), canonical(getattr(shown, "args", None)))
            digest = self._disclose(event.digest, getattr(shown, "digest", None))
            by = self._disclose(event.by, getattr(shown, "by", None))
            self._edits.append({"at": _time(event.at), "by": by, "arguments": arguments, "digest": digest})
        else:
            visible = (
                shown if isinstance(shown, e.VoteCast) else msgspec.structs.replace(event, reason=None, values=None)
            )
            vote: dict[str, Any] = {
                "at": _time(event.at),
                "decision": event.decision,
                "matched": [self._disclose(each, each) for each in event.matched],
                "via": _way(event.via),
                "digest": self._disclose(event.digest, visible.digest),
                "values": self._disclose(_canonical_text(event.values), _canonical_text(visible.values)),
            }
            if event.rule is not None:  # the digest is that of what the rule says
                vote["rule"] = {"id": event.rule.id, "sha256": event.rule.digest}
            self._votes.append({**vote, **self._people(event, visible)})

    def _fork(self, event: e.Forked, shown: e.Event) -> None:
        """What was before is another run's: what was decided there has its receipt there, and an open question is asked
        anew, with nobody's vote."""
        self._requester = self._disclose(event.by, getattr(shown, "by", None))
        self._votes, self._executions = [], []
        if self.decided:
            self._question, self._decision, self._effect = None, None, False

    def _close(self, event: e.PendingDecided | e.PendingVoided, shown: e.Event, state: RunState) -> None:
        pending = state.pendings[self._id].opened
        decision: dict[str, Any] = {"seq": state.seq, "at": _time(event.at)}
        if isinstance(event, e.PendingVoided):
            decision |= {"outcome": "voided"}
        else:
            visible = shown if isinstance(shown, e.PendingDecided) else msgspec.structs.replace(event, reason=None)
            value = (
                self._disclose(_canonical_text(event.value), _canonical_text(visible.value))
                if pending.kind not in ("gate", "approve")
                else None
            )
            decision |= {
                "outcome": event.outcome,
                "via": _way(event.via),
                "value": value,
                **self._people(event, visible),
            }
            self._effect = pending.kind == "gate" and pending.path in event.ready
        digest = canonical(pending.args)
        self._decision = {**decision, "arguments": None if digest is None else self._digest(digest)}

    def _supersede(self, event: e.PendingOpened, anew: e.AskedAnew) -> None:
        """The approval is spent: its last attempt has done nothing, and the question `event` was asked in its place."""
        self._superseded = {"by": event.id, "at": _time(event.at), "why": anew.why}
        self._executions = [each for each in self._executions if each["attempt"] != anew.attempt]

    def _begin(self, attempt: int, at: int, state: RunState) -> None:
        self._done = False
        arguments = canonical(state.steps[self._path].args)
        self._executions.append({
            "attempt": attempt, "began_at": _time(at), "ended_at": None, "outcome": None, "error": None,
            "output": None, "arguments": None if arguments is None else self._digest(arguments),
        })  # fmt: skip

    def _end(self, event: e.Event, shown: e.Event) -> None:
        self._done = True
        if not self._executions:
            return  # skipped or stopped before its first attempt
        output = self._disclose(
            _canonical_text(getattr(event, "output", None)), _canonical_text(getattr(shown, "output", None))
        )
        error = getattr(event, "error", None)
        self._executions[-1] |= {
            "ended_at": _time(event.at), "outcome": event.type.removeprefix("step_"), "output": output,
            "error": None if error is None else error.code,
        }  # fmt: skip

    def _people(self, event: e.VoteCast | e.PendingDecided, seen: e.VoteCast | e.PendingDecided) -> dict[str, Any]:
        return {
            **({"through": self._disclose_each(event.through, seen.through)} if event.through else {}),
            "by": self._disclose(event.by, seen.by),
            "on_behalf_of": self._disclose(event.on_behalf_of, seen.on_behalf_of),
            "reason": self._disclose(event.reason, seen.reason),
        }

    def _disclose(self, text: str | None, shown: str | None) -> dict[str, str] | None:
        """The digest of a text, which is told beside the signed part if the reader is shown it as it is."""
        if not text:
            return None
        if text == shown:
            self._texts[self._digest(text)["sha256"]] = {"salt": self._salt(text), "text": text}
        return self._digest(text)

    def _disclose_each(self, texts: Iterable[str], shown: Collection[str]) -> list[Json]:
        return [self._disclose(text, text if text in shown else None) for text in texts]

    def _digest(self, text: str) -> dict[str, str]:
        return {"sha256": hash_with_salt(self._salt(text), text)}


def canonical(text: str | None) -> str | None:
    """JSON text as RFC 8785 writes it. Numbers that it has no form for leave the text as it is."""
    if text is None:
        return None
    try:
        return rfc8785.dumps(values.loads(text)).decode()
    except (rfc8785.CanonicalizationError, values.NotJson):
        return text


def hash_with_salt(salt: str, text: str) -> str:
    """The digest of a text that a receipt has in its place, in hexadecimal."""
    return sha256((salt + text).encode()).hexdigest()


class UnprovenReceipt(ValueError):
    """A receipt that does not hold. The message says which part of it."""


def read_texts(document: str) -> tuple[str, dict[str, dict[str, str]]]:
    """The signed part of a receipt's file and its texts, each held against its digest. Raises Unproven."""
    try:
        content = json.loads(document)
        token, texts = content["receipt"], content["texts"]
        canonical_text = _file(content)
        exact = (
            set(content) == {"receipt", "texts"} and isinstance(token, str) and canonical_text == document.strip("\n")
        )
        proven = {
            key: set(each) == {"salt", "text"} and hash_with_salt(each["salt"], each["text"]) == key
            for key, each in texts.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UnprovenReceipt(
            "the file: expected a receipt with its `receipt` and its `texts`, found something else."
        ) from None
    if not exact:
        raise UnprovenReceipt("the file: expected a receipt as it was given out, found it written otherwise.")
    if wrong := [key for key, holds in proven.items() if not holds]:
        raise UnprovenReceipt(f"the texts: that under {wrong[0][:16]}... is not the text of this digest.")
    return token, texts


def check_payload(payload: bytes, texts: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the signed part. Raises Unproven if it contradicts itself, or if a text beside it is not of it."""
    try:
        content: dict[str, Any] = json.loads(payload)
        decided, executed = content["decision"]["arguments"], [each["arguments"] for each in content["executed"]]
        form = content["form"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnprovenReceipt("the content: expected a receipt, found something else.") from None
    if form != FORM:
        raise UnprovenReceipt(f"the content: expected form {FORM} of a receipt, found {form!r}.")
    if any(each != decided for each in executed):
        raise UnprovenReceipt("what was executed: its arguments are not those that were decided.")
    if strange := set(texts) - set(_list_digests(content)):
        raise UnprovenReceipt(f"the texts: nothing in the signed part has the digest {min(strange)[:16]}...")
    return content


def _list_digests(value: Json) -> list[str]:
    if isinstance(value, dict):
        own = [value["sha256"]] if set(value) == {"sha256"} else []
        return own + [each for part in value.values() for each in _list_digests(part)]
    return [each for part in value for each in _list_digests(part)] if isinstance(value, list) else []


def _describe_workflow(state: RunState) -> dict[str, Json]:
    return {"name": state.workflow, "version": state.version, "sha256": state.sha256}


def _way(via: str) -> str:
    """The way of an answer without the id of the person for whom it came, which stands beside it as a digest."""
    return via.partition(" (for ")[0]


def _file(content: Json) -> str:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _canonical_text(value: Json) -> str | None:
    return None if value is None else canonical(values.dumps(value).decode())


def _sha(value: Json) -> str | None:
    text = _canonical_text(value)
    return None if text is None else sha256(text.encode()).hexdigest()


def _time(ms: int) -> str:
    return instants.rfc3339(ms)
