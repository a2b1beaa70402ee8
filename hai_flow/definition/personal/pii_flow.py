"""Which values of a workflow's runs are personal: those that its schemas mark, and all values made of those, along the
expressions of the document. Conditions pass no marks on: the branch that a run takes says little of a value, and
readers of the run may see the branch. A value of unknown origin counts as personal. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from hai_flow.definition import plan
from hai_flow.definition.paths import is_inside, list_of, plan_path, rename_path
from hai_flow.definition.personal import pii_marks
from hai_flow.definition.personal.pii_marks import Mark, covers, join, mark_of_schema, under
from hai_flow.primitives.json_pointers import unescape

Children: TypeAlias = Callable[[plan.Run], "plan.Plan | None"]
"""Finds the workflow that a `run` step starts; None: it is not known."""
Derive: TypeAlias = Callable[[frozenset[str], bool], "Personal"]
"""Derives the personal values after the tools of the steps at these paths have asked people for some. True: a stream
waits for them."""


class OfStep(msgspec.Struct, frozen=True):
    """The personal parts of a step. `title` and `words` (of a message, a question, an event) are personal as a whole or
    not at all; `args`, `output`, its `evidence`, the `items` of a loop, and the `form` that it shows have marks;
    `answer` is the mark of the values of that form. `touches`: whether the step reads or makes anything personal, in
    which case its errors may quote it."""

    title: bool = False
    words: bool = False
    args: Mark = False
    output: Mark = False
    evidence: Mark = False
    items: Mark = False
    form: Mark = False
    answer: Mark = False
    touches: bool = False

    @property
    def approval(self) -> Mark:
        """The mark of a decision as expressions read it, with its values, reason, edits and votes."""
        edits: Mark = bool(self.args)
        remarks = pii_marks.record(values=self.answer, reason=self.touches)
        return pii_marks.record(values=self.answer, reason=self.touches, edits=edits, votes=under((0,), remarks))


NOTHING: Final = OfStep()
EVERYTHING: Final = OfStep(True, True, True, True, True, True, True, True, True)


@dataclass(frozen=True, eq=False)
class Personal:
    """The personal parts of the runs of the workflow `sha256` (in hex; "": of any workflow). Equal ones mask alike.
    `derive` makes those of the same runs after more tools have asked people; `answered`: the steps of those that
    have."""

    sha256: str = ""
    input: Mark = False
    state: Mark = False
    output: Mark = False
    message: bool = False  # the text that people write in the thread
    key: bool = False  # the concurrency key
    steps: Mapping[str, OfStep] = field(default_factory=dict)
    is_unknown: bool = False  # nothing is known of the workflow
    derive: Derive | None = None
    answered: frozenset[str] = frozenset()

    @cached_property
    def _key(self) -> str:
        steps = sorted((path, each) for path, each in self.steps.items())
        return repr(
            (self.sha256, *map(_mark_text, (self.input, self.state, self.output)), self.message, self.key, steps,
             self.depends_on_answers)
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Personal) and (self is other or self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def anything(self) -> bool:
        return bool(
            self.is_unknown or self.input or self.state or self.output or self.message or self.key
            or any(each.touches for each in self.steps.values())
        )  # fmt: skip

    @property
    def depends_on_answers(self) -> bool:
        """Whether tools of the workflow may ask people, by forms of their own: see `after_answers`."""
        return self.derive is not None

    def after_answers(self, paths: frozenset[str], *, is_limited: bool = False) -> Personal:
        """The personal values of a run in which the tools of the steps at `paths` have asked people for some: a tool
        may put what it is told into its output. `is_limited`: within milliseconds, and all values where it would take
        longer."""
        if self.derive is None or paths <= self.answered:
            return self
        return self.derive(self.answered | paths, is_limited)

    def of(self, path: str | None) -> OfStep:
        """The personal parts of the step at `path` in a run. For a path that no step of the workflow has, and for the
        document as a whole (""): everything, if anything in the workflow is personal."""
        place = find_step(self.steps, path or "")
        if place is None:
            return EVERYTHING if self.anything else NOTHING
        of_step = self.steps[place]
        return of_step if place == plan_path(path or "") or not of_step.touches else EVERYTHING


def find_step(steps: Container[str], path: str) -> str | None:
    """The path in the plan of the step at `path` in a run; for a step of a child run, of the step that started it."""
    place = plan_path(path) if path else ""
    while place and place not in steps:
        place = list_of(place)
    return place or None


def list_uncovered(before: Personal, after: Personal, paths: Mapping[str, str]) -> Iterator[str]:
    """The parts of a run that are personal before it goes on with another version, and not behind that. `paths`: steps
    that have another path there."""
    for name in ("input", "state", "output", "message", "key"):
        if not covers(getattr(after, name), getattr(before, name)):
            yield name
    for path, was in before.steps.items():
        now = after.of(rename_path(path, paths))
        if not all(covers(getattr(now, each), getattr(was, each)) for each in OfStep.__struct_fields__):
            yield path


def _mark_text(mark: Mark) -> str:
    if not isinstance(mark, Mapping):
        return str(mark)
    return f"{{{','.join(f'{name!r}:{_mark_text(mark[name])}' for name in sorted(mark))}}}"


WHOLE: Final = Personal(input=True, state=True, output=True, message=True, key=True, is_unknown=True)
"""Of a run whose workflow can't be read: all of it."""


def derive_personal(workflow: plan.Plan, children: Children) -> Personal:
    """The personal parts of a workflow's runs. `children` finds the workflows of its child runs."""
    if not any(map(_may_ask, workflow.steps.values())):
        return _derive_personal(workflow, children, False, ())

    @lru_cache(maxsize=16)
    def derive(paths: frozenset[str], is_limited: bool) -> Personal:
        budget = Budget(_LOOKS_MAX) if is_limited else None
        if budget is not None and not budget.spend(_TO_READ * len(workflow.steps)):
            return WHOLE
        flow = Flow(workflow, children, around=(workflow.sha256,), answered=paths, budget=budget)
        return flow.resolve(derive)

    return _derive_personal(workflow, children, False, (), derive=derive)


def _may_ask(step: plan.Step) -> bool:
    """Whether a tool that the step calls, or one of a run below, may ask people."""
    verb = step.verb
    if isinstance(verb, plan.AgentTurn):
        return any(isinstance(tool, plan.McpTool | plan.A2ATool) for _, tool in verb.tools)
    return isinstance(verb, plan.Run) or (
        isinstance(verb, plan.Call) and isinstance(verb.tool, plan.McpTool | plan.A2ATool)
    )


def _derive_personal(
    workflow: plan.Plan,
    children: Children,
    passed: Mark,
    around: tuple[bytes, ...],
    budget: Budget | None = None,
    derive: Derive | None = None,
) -> Personal:
    if budget is not None and not budget.spend(_TO_READ * len(workflow.steps)):
        return WHOLE
    if workflow.sha256 in around:  # a workflow that runs itself, somewhere
        return WHOLE if passed or declares(workflow) else Personal(workflow.sha256.hex())
    if (
        not passed
        and not declares(workflow)
        and not any(isinstance(each.verb, plan.Run) for each in workflow.steps.values())
    ):
        return Personal(workflow.sha256.hex(), derive=derive)
    return Flow(workflow, children, passed, (*around, workflow.sha256), budget=budget).resolve(derive)


def declares(workflow: plan.Plan) -> bool:
    """Whether any schema of the workflow says `pii: true`."""
    if mark_of_schema(workflow.input.raw) or mark_of_schema(workflow.state_schema.raw):
        return True
    return any(mark_of_schema(schema) for step in workflow.steps.values() for schema in _schemas(step))


def _schemas(step: plan.Step) -> Iterator[Any]:
    """The schemas of a step's arguments and of its output."""
    verb, gate = step.verb, step.approval
    for policy in (getattr(verb, "policy", None), None if gate is None else gate.policy):
        if policy is not None and policy.form is not None:
            yield policy.form.written
    yield from (each for each in (_parameters(verb), _result(verb)) if each is not None)
    if isinstance(verb, plan.AgentTurn):
        for _, tool in verb.tools:
            if isinstance(tool, plan.FrontendTool):
                yield from (each.raw for each in (tool.parameters, tool.result) if each is not None)


def _operation(verb: plan.Verb) -> plan.Operation | None:
    if not isinstance(verb, plan.Call) or not isinstance(verb.tool, plan.HttpTool) or verb.tool.service is None:
        return None
    try:
        return verb.tool.service.find(verb.function)
    except (KeyError, ValueError):
        return None


def _parameters(verb: plan.Verb) -> Any:
    if isinstance(verb, plan.Call) and isinstance(verb.tool, plan.FrontendTool):
        return None if verb.tool.parameters is None else verb.tool.parameters.raw
    operation = _operation(verb)
    return None if operation is None else operation.parameters.raw


def _result(verb: plan.Verb) -> Any:
    """The schema of a step's output."""
    if isinstance(verb, plan.Http | plan.Call) and verb.callback is not None:
        return None if verb.callback.schema is None else verb.callback.schema.raw
    if isinstance(verb, plan.Call) and isinstance(verb.tool, plan.FrontendTool):
        return None if verb.tool.result is None else verb.tool.result.raw
    if isinstance(verb, plan.Llm | plan.Agent | plan.AgentTurn):
        return None if verb.output is None else verb.output.raw
    operation = _operation(verb)
    return None if operation is None else operation.result


def reads(part: Any) -> Iterator[tuple[str | int, ...]]:
    """The paths into the data that the templates and expressions in a part of a plan read."""
    if hasattr(part, "holes"):
        yield from (path for hole in part.holes for path in hole.paths)
    elif hasattr(part, "paths"):
        yield from part.paths
    elif isinstance(part, Mapping):
        for each in part.values():
            yield from reads(each)
    elif isinstance(part, tuple | list):
        for each in part:
            yield from reads(each)
    elif not isinstance(part, plan.McpServer | plan.HttpTool | plan.A2ATool):
        for name in plan.list_fields(part) or ():
            yield from reads(getattr(part, name))


_ROUNDS_MAX: Final = 200
_LOOKS_MAX: Final = 300  # at steps, while a stream waits for the marks: a few milliseconds
_TO_READ: Final = 2  # looks that it costs to find out what a step reads


class Budget:
    """How many more steps may be looked at."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def spend(self, looks: int) -> bool:
        """Whether there is enough for that many."""
        self._looks -= looks
        return self._looks >= 0


class Flow:
    """The marks of one workflow, while they spread. Without `children` the runs below are taken to give back nothing
    personal."""

    def __init__(
        self,
        workflow: plan.Plan,
        children: Children | None = None,
        passed: Mark = False,
        around: tuple[bytes, ...] = (),
        answered: frozenset[str] = frozenset(),
        budget: Budget | None = None,
    ) -> None:
        self.workflow = workflow
        self.paths, self.budget = answered, budget
        self.answered = set(filter(None, (find_step(workflow.steps, each) for each in answered)))
        self.children = children
        self.around = around
        own = mark_of_schema(workflow.input.raw)
        self.message = own is True
        self.input = join(own, passed)
        self.state: Mark = {
            name: mark for name, each in workflow.state.items() if (mark := mark_of_schema(each.schema.raw))
        }
        self.output: Mark = False
        self.steps: dict[str, OfStep] = dict.fromkeys(workflow.steps, NOTHING)
        self.reads = {path: tuple(reads(step)) for path, step in workflow.steps.items()}

    def resolve(self, derive: Derive | None = None) -> Personal:
        for _ in range(_ROUNDS_MAX):
            if self.budget is not None and not self.budget.spend(len(self.steps)):
                return WHOLE
            before = (dict(self.steps), self.state, self.output)
            for path, step in self.workflow.steps.items():
                self.steps[path] = self._step(step)
            self.output = self._output()
            if before == (self.steps, self.state, self.output):
                break
        else:
            return WHOLE
        slot = self.workflow.concurrency
        return Personal(
            self.workflow.sha256.hex(),
            input=self.input,
            state=self.state,
            output=self.output,
            message=self.message,
            key=slot is not None and bool(self.mark(slot.key, None)),
            steps=self.steps,
            derive=derive,
            answered=self.paths,
        )

    def _output(self) -> Mark:
        ends = [] if self.workflow.output is None else [self.workflow.output]
        ends += [step.verb.value for step in self.workflow.steps.values() if isinstance(step.verb, plan.Return)]
        mark: Mark = False
        for each in ends:
            mark = join(mark, self.mark(each, None))
        return pii_marks.shallow(mark)

    # --- values that are read

    def _look(self, path: tuple[str | int, ...], step: plan.Step | None) -> Mark:
        """The mark of the data at `path`, as `step` (None: the end of the document) sees it."""
        root, rest = path[0], path[1:]
        if root == "input":
            return pii_marks.mark_at(self.input, rest)
        if root == "state":
            return pii_marks.mark_at(self.state, rest)
        if root == "steps":
            return self._look_at_step(rest)
        if root == "thread":
            return self.message and rest != ("id",)
        if root in ("now", "run", "index", "secrets", "callback", "event"):
            return False
        if root == "error":
            return any(each.touches for each in self.steps.values()) and rest not in (("code",), ("attempt",), ("at",))
        if root == "args":
            return pii_marks.mark_at(self.steps[step.path].args, rest) if step is not None else True
        if root in ("response", plan.THE_CALL):
            return step is not None and self._touches_agent_or_own(step)
        return pii_marks.mark_at(self._item(str(root), step), rest)

    def _look_at_step(self, path: tuple[str | int, ...]) -> Mark:
        marks = self.steps.get(self.workflow.ids.get(str(path[0]), "")) if path else EVERYTHING
        if marks is None:
            return True
        match path[1] if len(path) > 1 else None:
            case "output":
                return pii_marks.mark_at(marks.output, path[2:])
            case "approval":
                return pii_marks.mark_at(marks.approval, path[2:])
            case "status" | "usage":
                return False
            case "parts":
                return bool(marks.output)
            case _:
                return marks.touches

    def _touches_agent_or_own(self, step: plan.Step) -> bool:
        around = self._agent(step)
        return self.steps[around.path if around is not None else step.path].touches

    def _item(self, name: str, step: plan.Step | None) -> Mark:
        """The mark of the variable of a loop around the step."""
        for loop in self._around(step):
            if isinstance(loop.verb, plan.ForEach) and loop.verb.as_ == name:
                return pii_marks.part(self.mark(loop.verb.items, loop), 0)
        mark: Mark = name not in self.workflow.lets
        for path in self.workflow.lets.get(name, ()):
            mark = join(mark, pii_marks.mark_at(self.steps[path].output, (name,)))
        return mark

    def _around(self, step: plan.Step | None) -> Iterator[plan.Step]:
        while step is not None:
            yield step
            step = self.workflow.steps.get(step.parent)

    def _agent(self, step: plan.Step) -> plan.Step | None:
        around = (each for each in self._around(step) if each is not step)
        return next((each for each in around if isinstance(each.verb, plan.Agent)), None)

    def mark(self, template: plan.Template | None, step: plan.Step | None) -> Mark:
        joined: Mark = False
        for hole in () if template is None else template.holes:
            read = [self._look(path, step) for path in hole.paths]
            mark = read[0] if hole.is_whole and len(read) == 1 else any(map(bool, read))
            joined = join(joined, under(hole.place, mark))
        return joined

    def _reads(self, step: plan.Step) -> bool:
        """Whether anything that the step has to do with is personal."""
        return any(self._look(path, step) for path in self.reads[step.path] if path[0] != "args")

    # --- values that are made of them

    def _step(self, step: plan.Step) -> OfStep:
        verb, gate = step.verb, step.approval
        agent = verb if isinstance(verb, plan.Agent) else None
        around = self._agent(step)
        if around is not None and self.steps[around.path].touches:
            return EVERYTHING
        is_answered = step.path in self.answered
        touches = is_answered or self.steps[step.path].touches or self._reads(step) or self._is_declared(step)
        if agent is not None and (self._inside(step) or (agent.memory == "thread" and self._is_thread_personal())):
            touches = True
        args = join(self.mark(getattr(verb, "arguments", None), step), mark_of_schema(_parameters(verb)))
        if isinstance(verb, plan.Call) and verb.into is not None and touches:
            args = True  # also of the call in which its text grows
        policy = getattr(verb, "policy", None) or (None if gate is None else gate.policy)
        form = None if policy is None else policy.form
        answer = self._answer(form, policy, step)
        of_step = OfStep(
            title=bool(self.mark(step.title, step)) or any(bool(self.mark(each, step)) for each in _iter_titles(step)),
            words=any(bool(self.mark(each, step)) for each in _words(step)) or (agent is not None and touches),
            args=pii_marks.shallow(args),
            evidence=pii_marks.shallow(
                join(self.mark(getattr(verb, "evidence", None), step), gate is not None and (touches or bool(args)))
            ),
            items=pii_marks.shallow(self.mark(verb.items, step)) if isinstance(verb, plan.ForEach) else False,
            form=pii_marks.shallow(self.mark(form, step)),
            answer=pii_marks.shallow(answer),
            touches=touches or bool(args) or bool(answer),
        )
        output = pii_marks.shallow(self._gives(step, of_step))
        if is_answered and not pii_marks.denies(_result(verb)):
            output = True
        more = {"words": True} if is_answered else self._below(step, of_step)
        if output and isinstance(verb, plan.EFFECTS):  # the text that it streams is its output
            more |= {"words": True, "touches": True}
        return replace(of_step, output=output, **more)

    def _below(self, step: plan.Step, found: OfStep) -> dict[str, Any]:
        """The marks that a child run adds: its messages and its errors are shown in this run, too."""
        if not isinstance(step.verb, plan.Run):
            return {}
        is_personal = self._child(step.verb, found.args).anything
        return {"touches": found.touches or is_personal, "words": found.words or is_personal}

    def _child(self, run: plan.Run, passed: Mark) -> Personal:
        if self.children is None:
            return Personal()
        child = self.children(run)
        return WHOLE if child is None else _derive_personal(child, self.children, passed, self.around, self.budget)

    def _is_declared(self, step: plan.Step) -> bool:
        return any(mark_of_schema(schema) for schema in _schemas(step))

    def _is_thread_personal(self) -> bool:
        return self.message or any(each.touches for each in self.steps.values())

    def _inside(self, step: plan.Step) -> bool:
        return any(self.steps[path].touches for path in self.steps if is_inside(path, step.path))

    def _answer(self, form: plan.Template | None, policy: plan.Policy | None, step: plan.Step) -> Mark:
        """The mark of the values of a form: of those that its schema marks, and of personal ones that are filled in
        beforehand."""
        if form is None or policy is None:
            return False
        answer_mark = join(mark_of_schema(form.written), self.mark(policy.expiry.value, step))
        properties = pii_marks.part(self.mark(form, step), "properties")
        if not isinstance(properties, Mapping):
            return join(answer_mark, properties)
        for name, mark in properties.items():
            parts = mark if isinstance(mark, Mapping) else {}
            filled = mark is True or any(key not in ("title", "description") for key in parts)
            answer_mark = join(answer_mark, under((name,), filled))
        return answer_mark

    def _gives(self, step: plan.Step, own: OfStep) -> Mark:
        verb = step.verb
        match verb:
            case plan.Ask():
                return own.answer
            case plan.Approve():
                return own.approval
            case plan.Run():
                return False if verb.detach else self._child(verb, own.args).output
            case plan.Let():
                return self.mark(verb.values, step)
            case plan.Set():
                self._assign(verb, step)
                return False
            case plan.ForEach():
                body = self.workflow.steps.get(verb.iteration)
                inner = self.mark(getattr(body and body.verb, "output", None), body) or self._inner(step)
                return under((0,), pii_marks.record(output=inner, error=self._inside(step)))
            case plan.Iteration():
                return self.mark(verb.output, step) or self._inner(step)
            case plan.Switch():
                return any(self.mark(each, step) for each in verb.results) or self._inner(step)
            case plan.Parallel() if verb.results:
                return any(self.mark(each, step) for each in verb.results.values()) or self._inner(step)
            case plan.Parallel() | plan.Try() | plan.Repeat() | plan.AgentCalls():
                return self._inner(step)
            case plan.Say() | plan.Emit() | plan.Fail() | plan.Return() | plan.Wait() | plan.Break() | plan.Continue():
                return False
            case plan.WaitFor():
                return self.mark(verb.expiry.value, step)
        result = _result(verb)
        declared = mark_of_schema(result)
        # A verb that this function does not know may put anything that it reads into its output.
        is_by_arguments = hasattr(verb, "arguments") and not isinstance(verb, plan.Agent | plan.AgentTurn)
        is_personal = bool(own.args) if is_by_arguments else own.touches
        return True if is_personal and not pii_marks.denies(result) else declared

    def _inner(self, step: plan.Step) -> bool:
        return any(self.steps[path].output for path in self.steps if is_inside(path, step.path))

    def _assign(self, verb: plan.Set, step: plan.Step) -> None:
        state_mark = self.state
        for name, template in verb.assign:
            path = [unescape(each) for each in name.removeprefix("/").split("/")]
            value_mark = self.mark(template, step)
            if (variable := self.workflow.state.get(path[0])) is not None and variable.reduce == "append":
                value_mark = join(value_mark, under((0,), value_mark))
            place = [0 if each.isdigit() or each == "-" else each for each in path]
            state_mark = join(state_mark, join(under(place, value_mark), under(path, value_mark)))
        if verb.ops is not None and self.mark(verb.ops, step):
            state_mark = True
        self.state = pii_marks.shallow(state_mark)


def _iter_titles(step: plan.Step) -> Iterator[plan.Template | None]:
    yield getattr(step.verb, "title", None)
    yield None if step.approval is None else step.approval.title


def _words(step: plan.Step) -> Iterator[plan.Template | None]:
    verb = step.verb
    for name in ("message", "content", "block_id", "layout", "style", "data"):
        yield getattr(verb, name, None)
    yield None if step.approval is None else step.approval.message
