"""The client's exceptions: for a refusal as the server sent it, and for a server that did not answer.

HaiFlowError          status, code, detail, findings, winner
+-- Invalid           400, 413, 415, 422: the request is wrong; `findings` lists every fault
+-- Forbidden         401, 403: not for you
+-- NotFound          404: it does not exist, or it is not yours
+-- Conflict          409, 410: it is not the time for it, or too late; `winner` is the decision that stands
+-- Unavailable       408, 429, 502, 503, 504, or no answer at all (`status` None): later it may work
+-- RunFailed         `result` of a run that failed or was stopped; `run` says the rest
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from hai_flow_client.models import Run

PROBLEM_TYPE: Final = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A refusal as the server sends it (RFC 9457). `code` is for programs, `detail` for people.

    `status` is None where no answer came, `type` is "" where it did not come from a HAI Flow server. `findings` are
    every mistake at once, `winner` is the decision that stands instead, `params` the words that `detail` puts in
    quotes, `see` the page of the server's console that helps, like `/console/runs`.
    """

    type: str = ""
    title: str = ""
    status: int | None = None
    code: str
    detail: str
    findings: list[Any] = []
    winner: Any = None
    params: list[str] = []
    see: str = ""


class HaiFlowError(Exception):
    """A request that did not succeed, and why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(_sentence(problem))
        self.problem = problem

    @property
    def status(self) -> int | None:
        return self.problem.status

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def detail(self) -> str:
        return self.problem.detail

    @property
    def findings(self) -> list[Any]:
        return self.problem.findings

    @property
    def winner(self) -> Any:
        return self.problem.winner


class Invalid(HaiFlowError):
    """The request, an input, an answer or a workflow is wrong; `findings` lists every fault."""


class Forbidden(HaiFlowError):
    """This caller may not do that."""


class NotFound(HaiFlowError):
    """It does not exist, or you may not see it."""


class Conflict(HaiFlowError):
    """It is too early or too late: somebody was first, the run has ended, the deadline has passed. See `winner`."""


class Unavailable(HaiFlowError):
    """The server does not answer, or not now. `retry_after` is the pause that it asked for, in seconds."""

    def __init__(self, problem: Problem, retry_after: float = 0.0) -> None:
        super().__init__(problem)
        self.retry_after = retry_after


class RunFailed(HaiFlowError):
    """The run has ended without an output: `run.status` is failed or stopped."""

    def __init__(self, run: Run) -> None:
        code, detail = f"run_{run.status}", f"the run {run.id} was stopped."
        if run.error is not None:
            code, detail = run.error.code, f"the run {run.id} failed: {run.error.message}"
        super().__init__(Problem(code=code, detail=detail))
        self.run = run


def unreachable(url: str, reason: str) -> Unavailable:
    """The error where no answer came from the server at `url`."""
    why = f" ({reason})" if reason else ""
    detail = f"no server answers at {url}{why}. Is HAI_FLOW_URL the right address?"
    return Unavailable(Problem(title=reason, code="unreachable", detail=detail))


def unreadable(reason: str, status: int | None = None) -> HaiFlowError:
    """The error where an answer came, but not from HAI Flow."""
    detail = f"the server's answer is not as HAI Flow's: {reason}. Is HAI_FLOW_URL the right address?"
    return HaiFlowError(Problem(status=status, code="answer_unreadable", detail=detail))


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes) -> HaiFlowError:
    """The exception for an answer that is no success."""
    problem = _problem(url, status, headers, body)
    if status in (408, 429, 502, 503, 504):
        return Unavailable(problem, _seconds(headers.get("retry-after", "")))
    return _KINDS.get(status, HaiFlowError)(problem)


_KINDS: Final[dict[int, type[HaiFlowError]]] = {
    **dict.fromkeys((400, 413, 415, 422), Invalid),
    **dict.fromkeys((401, 403), Forbidden),
    404: NotFound,
    **dict.fromkeys((409, 410), Conflict),
}


def _problem(url: str, status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    if headers.get("content-type", "").startswith(PROBLEM_TYPE):
        try:
            return msgspec.structs.replace(msgspec.json.decode(body, type=Problem), status=status)
        except msgspec.MsgspecError:
            pass
    detail = f"{url} answered {status}, but not as HAI Flow does. Is HAI_FLOW_URL the right address?"
    return Problem(status=status, code=f"http_{status}", detail=detail)


def _seconds(text: str) -> float:
    """The seconds of a Retry-After header; 0.0 for one that is a date, because the clocks of two machines differ."""
    return float(text) if text.isdecimal() and len(text) < 10 else 0.0


def _sentence(problem: Problem) -> str:
    """The detail and each finding, as people read them."""
    lines = [problem.detail]
    for finding in problem.findings:
        if isinstance(finding, dict) and "message" in finding:
            place = finding.get("path") or (f"line {finding['line']}" if finding.get("line") else "")
            lines.append(f"  {place}: {finding['message']}" if place else f"  {finding['message']}")
    return "\n".join(lines)
