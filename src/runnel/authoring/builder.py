"""The builder: a workflow as a graph of Python callables, one `add_step` for each.

    dag = WorkflowDAG("document")
    dag.add_step("extract", extract, resource_tag="gemini_api")
    dag.add_step("save_json", save_json, depends_on=["extract"])

It becomes the same model as a workflow from a file, and `WorkflowExecutor` runs it on the same
engine; only the code of its steps lives in this process. `add_node` adds what a file would say:
such a workflow can be written down, and `runnel.run` runs it as it runs any other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from runnel.authoring.calls import Mode, is_async, resolve_mode
from runnel.authoring.context import StepContext
from runnel.authoring.documents import add_inferred_dependencies
from runnel.authoring.documents.fields import drop_defaults
from runnel.core.graph import Graph
from runnel.core.ids import NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.validation import find_problems
from runnel.core.values import Json
from runnel.core.wording import describe_value
from runnel.core.workflow import (
    TIMEOUT_S_DEFAULT,
    Cache,
    Node,
    OnFailure,
    RateLimit,
    RunWhen,
    Workflow,
)
from runnel.errors import InvalidWorkflowError

# Nodes that name their handler, as those of a document do: they can run anywhere.


class NodeFields(TypedDict, total=False):
    """The fields of a node in a document, besides those that `add_node` names itself."""

    condition: str
    run_when: str
    retry: RetryPolicy
    timeout_seconds: float
    soft_timeout_seconds: float
    resource_tag: str
    concurrency_key: str
    concurrency_limit: int
    for_each: str
    queue: str
    cache: Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerNode:
    """As it was added; `depends_on` None leaves the dependencies to its templates."""

    id: str
    handler: str
    config: dict[str, Json]
    depends_on: tuple[str, ...] | None
    child: Workflow | None
    fields: Mapping[str, Any]

    def to_node(self, retry: RetryPolicy) -> Node:
        fields = dict(self.fields)
        known = {str(member): member for member in RunWhen}
        if fields.get("run_when") in known:
            fields["run_when"] = known[fields["run_when"]]
        for name in ("timeout_seconds", "soft_timeout_seconds"):
            if isinstance(fields.get(name), int):
                fields[name] = float(fields[name])
        return Node(
            id=NodeId(self.id),
            handler=self.handler,
            config=self.config,
            dependencies=tuple(map(NodeId, self.depends_on or ())),
            child=self.child,
            **drop_defaults(Node, {"retry": retry, **fields}),
        )


STEP_HANDLER = "step"

StepFunction: TypeAlias = Callable[[StepContext], Any]
Condition: TypeAlias = Callable[[StepContext], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step as it was added; `max_retries` and `retry_delay` change single fields of `retry`."""

    id: str
    fn: StepFunction
    depends_on: tuple[str, ...] = ()
    condition: Condition | None = None
    resource_tag: str | None = None
    max_retries: int | None = None
    retry_delay: float | None = None
    retry: RetryPolicy | None = None
    timeout_seconds: float = TIMEOUT_S_DEFAULT
    run_when: str = RunWhen.DEFAULT

    @property
    def mode(self) -> Mode:
        """On the loop for async functions, in a thread for all others."""
        return resolve_mode(self.fn, "auto")

    def retry_policy(self, default: RetryPolicy) -> RetryPolicy:
        policy = self.retry if isinstance(self.retry, RetryPolicy) else default
        changes: dict[str, Any] = {}
        if self.max_retries is not None:
            changes["max_retries"] = self.max_retries
        if self.retry_delay is not None:
            changes["initial_delay"] = self.retry_delay
        return msgspec.structs.replace(policy, **changes) if changes else policy


class WorkflowFields(TypedDict, total=False):
    """The other fields of a workflow in a document."""

    input: dict[str, Json]
    sla_seconds: float
    max_concurrency: int
    rate_limits: dict[str, RateLimit]
    labels: dict[str, str]
    output: Json


class WorkflowDAG:
    """Steps and their dependencies. After a failure, `continue` skips the dependents only.

    `on_failure="fail_fast"` ends the whole execution at the first failed step instead.
    """

    def __init__(
        self,
        name: str = "workflow",
        *,
        on_failure: str = OnFailure.CONTINUE,
        timeout_seconds: float | None = None,
        **fields: Unpack[WorkflowFields],
    ) -> None:
        self.name = name
        self.on_failure = on_failure
        self.timeout_seconds = timeout_seconds
        self._fields = fields
        self._entries: list[Step | HandlerNode] = []

    @property
    def steps(self) -> Mapping[str, Step]:
        """By id, in the order in which they were added."""
        return MappingProxyType({step.id: step for step in self._steps})

    @property
    def nodes(self) -> Mapping[str, HandlerNode]:
        """Those that name a handler, by id, in the order in which they were added."""
        return MappingProxyType(
            {entry.id: entry for entry in self._entries if isinstance(entry, HandlerNode)}
        )

    @property
    def _steps(self) -> list[Step]:
        return [entry for entry in self._entries if isinstance(entry, Step)]

    def add_step(
        self,
        id: str,
        fn: StepFunction,
        depends_on: Iterable[str] | None = (),
        condition: Condition | None = None,
        resource_tag: str | None = None,
        *,
        max_retries: int | None = None,
        timeout_seconds: float = TIMEOUT_S_DEFAULT,
        retry_delay: float | None = None,
        retry: RetryPolicy | None = None,
        run_when: str = RunWhen.DEFAULT,
    ) -> Self:
        """Adds `fn(ctx)`, sync or async, to run once all steps of `depends_on` have settled.

        `condition(ctx)` is asked first: false means SKIPPED, an exception fails the step. Without
        `max_retries` the executor's policy holds, which is 3 unless you change it; ValueError,
        TypeError, KeyError and AttributeError are not retried unless `retry` names them in
        `retry_on`. Nothing is checked here: `validate` reports all problems at once.
        """
        self._entries.append(
            Step(
                id=id,
                fn=fn,
                depends_on=_normalize_ids(depends_on),
                condition=condition,
                resource_tag=resource_tag,
                max_retries=max_retries,
                retry_delay=retry_delay,
                retry=retry,
                timeout_seconds=timeout_seconds,
                run_when=run_when,
            )
        )
        return self

    def add_node(
        self,
        id: str,
        handler: str,
        config: Mapping[str, Json] | None = None,
        *,
        depends_on: Iterable[str] | None = None,
        child: "Workflow | WorkflowDAG | None" = None,
        **fields: Unpack[NodeFields],
    ) -> Self:
        """Adds a node of a handler; its config may hold templates.

        Without `depends_on` its parents are those that its templates name. `child` is the workflow
        of the handler `workflow`. Nothing is checked here, as with `add_step`.
        """
        self._entries.append(
            HandlerNode(
                id=id,
                handler=handler,
                config=dict(config or {}),
                depends_on=None if depends_on is None else _normalize_ids(depends_on),
                child=child.to_workflow() if isinstance(child, WorkflowDAG) else child,
                fields=fields,
            )
        )
        return self

    def validate(self) -> None:
        """Raises InvalidWorkflowError with every problem; a cycle is named step by step."""
        self.to_workflow()

    def get_execution_layers(self) -> list[list[str]]:
        """Steps by their distance from the roots; those of one layer may run in parallel."""
        return [list(layer) for layer in Graph(self.to_workflow()).layers()]

    def to_workflow(self, *, retry: RetryPolicy | None = None) -> Workflow:
        """The model that the engine runs; `retry` is the policy of steps without their own."""
        workflow = Workflow(
            name=self.name,
            nodes=self._nodes(retry or RetryPolicy()),
            on_failure=_parse_member(OnFailure, self.on_failure),
            timeout_seconds=self.timeout_seconds,
            **self._fields,
        )
        problems = list(self._problems(workflow))
        if problems:
            raise InvalidWorkflowError(problems, source=f"workflow {describe_value(self.name)}")
        return workflow

    def _nodes(self, retry: RetryPolicy) -> tuple[Node, ...]:
        nodes = [
            _build_node(entry, retry) if isinstance(entry, Step) else entry.to_node(retry)
            for entry in self._entries
        ]
        stated = {
            NodeId(entry.id)
            for entry in self._entries
            if isinstance(entry, Step) or entry.depends_on is not None
        }
        return add_inferred_dependencies(nodes, explicit_ids=frozenset(stated))

    def _problems(self, workflow: Workflow) -> Iterator[str]:
        if not self._entries:
            yield "it has no steps; add at least one with add_step"
            return
        for step in self._steps:
            for problem in _find_code_problems(step):
                yield f"node {describe_value(step.id)}: {problem}"
        yield from find_problems(workflow)


def _normalize_ids(depends_on: Iterable[str] | None) -> tuple[str, ...]:
    """One id may be given as it is: its letters are never meant."""
    if depends_on is None:
        return ()
    return (depends_on,) if isinstance(depends_on, str) else tuple(depends_on)


def _find_code_problems(step: Step) -> Iterator[str]:
    """What only Python can get wrong; the graph itself is judged by the core."""
    # Any: nothing has checked yet that the values are what their annotations say.
    fn: Any = step.fn
    condition: Any = step.condition
    retry: Any = step.retry
    if not callable(fn):
        yield f"fn: expected a function that takes ctx, got {describe_value(fn)}"
    if condition is not None and not callable(condition):
        yield f"condition: expected a function that takes ctx, got {describe_value(condition)}"
    elif condition is not None and is_async(condition):
        yield "condition: expected a plain function, got an async one; await in fn instead"
    if retry is not None and not isinstance(retry, RetryPolicy):
        yield f"retry: expected a RetryPolicy, got {describe_value(retry)}"
    for parent in _find_non_ids(step):
        yield f"depends_on: expected the ids of steps, got {describe_value(parent)}"


def _find_non_ids(step: Step) -> list[Any]:
    parents: tuple[Any, ...] = step.depends_on
    return [parent for parent in parents if not isinstance(parent, str)]


def _build_node(step: Step, retry: RetryPolicy) -> Node:
    parents = () if _find_non_ids(step) else step.depends_on
    return Node(
        id=NodeId(step.id),
        handler=STEP_HANDLER,
        config={"mode": step.mode.value},
        dependencies=tuple(NodeId(parent) for parent in parents),
        run_when=_parse_member(RunWhen, step.run_when),
        retry=step.retry_policy(retry),
        timeout_seconds=step.timeout_seconds,
        resource_tag=step.resource_tag,
    )


E = TypeVar("E", RunWhen, OnFailure)


def _parse_member(kind: type[E], name: str) -> E:
    """The text itself when it names no member: validation then says what there is."""
    known = {str(member): member for member in kind}
    return known.get(name, name)  # type: ignore[arg-type]  # refused before anybody relies on it
