"""The tests of a workflow, both given as texts, played in a process of its own.

Both are programs by strangers, and a test may go on for a long time. So the process has limits: of time, of memory, and
of the bytes that it answers with. It has no secrets: nothing of the server's environment. It works as a script, too:
`python -m hai_flow.testing.sandbox` reads a line of JSON and writes one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import Any, Final

from hai_flow import values
from hai_flow.definition.compiler import compile_workflow
from hai_flow.errors import DefinitionError, Finding, HaiFlowError
from hai_flow.testing.documents.binding import check_suite
from hai_flow.testing.documents.reader import read_suite
from hai_flow.testing.loading import with_roles_of
from hai_flow.testing.report import closing, first_words
from hai_flow.testing.runner import Result, run_case

SECONDS_MAX: Final = 10.0
MEMORY_BYTES_MAX: Final = 2 << 30  # of addresses
ANSWER_BYTES_MAX: Final = 1 << 20
WORKFLOW_FILE: Final = "<workflow>"
TESTS_FILE: Final = "<tests>"


class NotPlayed(HaiFlowError):
    """The tests went beyond a limit of their process."""


def play_texts(workflow: bytes, tests: bytes) -> dict[str, Any]:
    """Play every case of the tests, whatever file they name: `cases` and `findings` as `hai-flow test --json` prints
    them, how many `passed` and `failed`, and `lines` for people. With findings nothing is played."""
    began = time.perf_counter()
    findings, results = _play(workflow, tests)
    failed = [result for result in results if not result.passed]
    lines = [str(finding) for finding in findings] + [f"FAILED {first_words(result)}" for result in failed]
    return {
        "cases": [result.as_dict() for result in results],
        "findings": [finding.as_dict() for finding in findings],
        "passed": len(results) - len(failed),
        "failed": len(failed),
        "lines": [*lines, closing(results, len(findings), 0, time.perf_counter() - began)],
    }


def _play(workflow: bytes, tests: bytes) -> tuple[list[Finding], list[Result]]:
    suite, findings = read_suite(tests, TESTS_FILE)
    try:
        plan = compile_workflow(workflow, WORKFLOW_FILE)
    except DefinitionError as error:
        return [*findings, *error.findings], []
    if suite is None:
        return findings, []
    suite, roleless = with_roles_of(suite, plan)
    faults = [*roleless, *check_suite(suite, plan)]
    return (faults, []) if faults else ([], [run_case(suite, case, plan) for case in suite.cases])


def play_sandboxed(workflow: bytes, tests: bytes, seconds: float = SECONDS_MAX) -> dict[str, Any]:
    """`play_texts`, in a process of its own. Raises NotPlayed."""
    path = os.pathsep.join(each for each in sys.path if each)
    request = values.dumps([workflow.decode(errors="replace"), tests.decode(errors="replace"), seconds])
    try:
        ended = subprocess.run(
            [sys.executable, "-m", __name__], input=request, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=seconds, start_new_session=True, env={"PYTHONPATH": path, "PYTHONUTF8": "1"}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotPlayed(
            f"the tests did not end within {seconds:g} s, and were cut. Play fewer cases at once, or all of them with "
            "`hai-flow test`."
        ) from None
    if ended.returncode:
        raise NotPlayed(
            f"the tests took more than {MEMORY_BYTES_MAX >> 30} GiB of memory or {seconds:g} s of processor time, or "
            f"have results of more than {ANSWER_BYTES_MAX >> 20} MiB. Play fewer cases at once, or all of them with "
            "`hai-flow test`."
        )
    answer: dict[str, Any] = values.loads(ended.stdout)
    return answer


# --- in the process that plays ----------------------------------------------------------------------------------------


def _main() -> None:
    workflow, tests, seconds = values.loads(sys.stdin.buffer.read())
    _limit(seconds)
    answer = values.dumps(play_texts(workflow.encode(), tests.encode()))
    if len(answer) > ANSWER_BYTES_MAX:
        sys.exit(1)
    sys.stdout.buffer.write(answer)


def _limit(seconds: float) -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _main()
