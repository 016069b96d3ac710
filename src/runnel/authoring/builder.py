"""The builder: `WorkflowDAG` describes a workflow as a graph of Python callables.

    dag = WorkflowDAG("document")
    dag.add_step("extract", extract, resource_tag="gemini_api")
    dag.add_step("save_json", save_json, depends_on=["extract"])

The builder produces the same model as a workflow file, and `WorkflowExecutor` runs it on the same
engine. Steps run in this process only, because they are plain Python callables. `add_node` adds a
node that names a handler, as a workflow file does. A workflow without steps, which has only such
nodes, can be exported to a file, and `runnel.run` accepts it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Self, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from runnel.authoring.calls import Mode, is_async, resolve_mode
from runnel.authoring.context import StepContext
from runnel.authoring.documents import add_inferred_dependencies
from runnel.authoring.documents.fields import drop_defaults
from runnel.core.graph import Graph
from runnel.core.ids import NodeId
from runnel.core.message_text import describe_value
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen, WhenNotMet
from runnel.core.validation import find_problems
from runnel.core.validation.checks import CACHE_CHECKS
from runnel.core.values import Json
from runnel.core.workflow import (
    CACHE_TTL_S_DEFAULT,
    TIMEOUT_S_DEFAULT,
    Cache,
    Node,
    OnFailure,
    RateLimit,
    Workflow,
)
from runnel.errors import InvalidWorkflowError

# Nodes that name their handler, like the nodes of a workflow file. Any worker can run them.


class NodeFields(TypedDict, total=False):
    """The optional fields of a node, with the names that they have in a workflow file.

    `add_node` has parameters of its own for `id`, `handler`, `config` and `dependencies`.
    """

    condition: str
    run_when: str
    when_not_met: str
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
    """A node added by `add_node`. If `depends_on` is None, its templates define its parents."""

    id: str
    handler: str
    config: dict[str, Json]
    depends_on: tuple[str, ...] | None
    child: Workflow | None
    fields: Mapping[str, Any]

    def to_node(self, retry: RetryPolicy) -> Node:
        fields = dict(self.fields)
        if "run_when" in fields:
            fields["run_when"] = _parse_member(RunWhen, fields["run_when"])
        if "when_not_met" in fields:
            fields["when_not_met"] = _parse_member(WhenNotMet, fields["when_not_met"])
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
class StepCache:
    """Allows a step to reuse an earlier result with the same key, up to `ttl`.

    `ttl` is a number of seconds or a timedelta; the default is a day.

    `key(ctx)` returns what the result depends on, such as the content of a document: text, bytes or
    a JSON value. If it returns None, the step runs without the cache. Results are shared between
    executions of the same step id and function in workflows of the same name.

        dag.add_step("extract", extract, cache=StepCache(key=lambda ctx: ctx["content"]))
    """

    key: Callable[[StepContext], Any]
    ttl: float | timedelta = CACHE_TTL_S_DEFAULT

    @property
    def ttl_s(self) -> float:
        """`ttl` in seconds."""
        return self.ttl.total_seconds() if isinstance(self.ttl, timedelta) else self.ttl


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step added by `add_step`."""

    id: str
    fn: StepFunction
    depends_on: tuple[str, ...] = ()
    condition: Condition | None = None
    resource_tag: str | None = None
    retry: "StepRetry"
    timeout_seconds: float = TIMEOUT_S_DEFAULT
    soft_timeout_seconds: float | None = None
    run_when: str = RunWhen.DEFAULT
    when_not_met: str = WhenNotMet.SKIP
    cache: StepCache | None = None

    @property
    def mode(self) -> Mode:
        """Where `fn` runs: on the event loop if `fn` is async, otherwise in a thread."""
        return resolve_mode(self.fn, "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetry:
    """The retry options of one step. The executor's policy replaces options that are None."""

    policy: RetryPolicy | None = None
    max_retries: int | None = None
    initial_delay: float | None = None

    def resolve(self, default: RetryPolicy) -> RetryPolicy:
        """Returns the retry policy of the step, changed by `max_retries` and `initial_delay`."""
        policy = self.policy if isinstance(self.policy, RetryPolicy) else default
        changes: dict[str, Any] = {}
        if self.max_retries is not None:
            changes["max_retries"] = self.max_retries
        if self.initial_delay is not None:
            changes["initial_delay"] = self.initial_delay
        return msgspec.structs.replace(policy, **changes) if changes else policy


class WorkflowFields(TypedDict, total=False):
    """The optional fields of a workflow, with the names that they have in a workflow file."""

    input: dict[str, Json]
    sla_seconds: float
    max_concurrency: int
    priority: int
    rate_limits: dict[str, RateLimit]
    labels: dict[str, str]
    output: Json


class WorkflowDAG:
    """A workflow as a graph of steps, built by calls of `add_step` and `add_node`.

    `on_failure` is the effect of a failed step: "continue" (default) skips the steps that depend on
    the failed step, "fail_fast" ends the execution. `timeout_seconds` limits the whole execution.

        dag = WorkflowDAG("document").add_step("extract", extract)
        result = await WorkflowExecutor().execute(dag)
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
        """The steps by id, in the order in which they were added."""
        return MappingProxyType({step.id: step for step in self._steps})

    @property
    def nodes(self) -> Mapping[str, HandlerNode]:
        """The nodes of `add_node` by id, in the order in which they were added."""
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
        soft_timeout_seconds: float | None = None,
        retry_delay: float | None = None,
        retry: RetryPolicy | None = None,
        run_when: str = RunWhen.DEFAULT,
        when_not_met: str = WhenNotMet.SKIP,
        cache: StepCache | None = None,
    ) -> Self:
        """Adds a step that calls `fn(ctx)` once every step in `depends_on` has settled.

        `fn` is a sync or async function; `ctx` is its StepContext. `condition(ctx)` is called
        before `fn`. If the condition returns false, the step is SKIPPED; if the condition raises,
        the step fails. `resource_tag` names the rate limit that each attempt counts against.
        `timeout_seconds` limits one attempt. After `soft_timeout_seconds`, SoftTimeoutError is
        raised in an async `fn`; a sync `fn` reads `ctx.task.soft_timeout`.

        `retry` is the retry policy; the default is the executor's policy with 3 retries.
        `max_retries` and `retry_delay` (seconds before the first retry) override that policy.
        ValueError, TypeError, KeyError and AttributeError are retried only if `retry` lists them
        in `retry_on`.

        `run_when` says which results of the steps in `depends_on` start the step. If it is not met,
        the step is SKIPPED, or FAILED with `when_not_met="fail"`.

        With `cache`, a result with the same key replaces the call of `fn`. `condition` and the rate
        limit come before the cache. Steps that run at the same time with the same key all call
        `fn`.

        Returns the WorkflowDAG, so that calls can be chained. Checks nothing: `validate` reports
        all problems at once.
        """
        self._entries.append(
            Step(
                id=id,
                fn=fn,
                depends_on=_normalize_ids(depends_on),
                condition=condition,
                resource_tag=resource_tag,
                retry=StepRetry(policy=retry, max_retries=max_retries, initial_delay=retry_delay),
                timeout_seconds=timeout_seconds,
                soft_timeout_seconds=soft_timeout_seconds,
                run_when=run_when,
                when_not_met=when_not_met,
                cache=cache,
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
        """Adds a node that runs a handler with `config`, which may contain templates.

        Without `depends_on`, the node depends on the nodes that its templates name. `child` is the
        workflow that a node of the handler `workflow` runs. `fields` are the other keys of a node
        in a workflow file.

        Returns the WorkflowDAG, so that calls can be chained. Checks nothing: `validate` reports
        all problems at once.
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
        """Raises InvalidWorkflowError, which lists every problem, and the steps of a cycle."""
        self.to_workflow()

    def get_execution_layers(self) -> list[list[str]]:
        """Returns the step ids in layers; the steps of one layer can run in parallel.

        The first layer has the steps without dependencies. Raises InvalidWorkflowError if the
        workflow has problems.
        """
        return [list(layer) for layer in Graph(self.to_workflow()).layers()]

    def to_workflow(self, *, retry: RetryPolicy | None = None) -> Workflow:
        """Returns the model that the engine runs; raises InvalidWorkflowError if it has problems.

        `retry` is the policy of steps without a policy of their own.
        """
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
        explicit_ids = {
            NodeId(entry.id)
            for entry in self._entries
            if isinstance(entry, Step) or entry.depends_on is not None
        }
        return add_inferred_dependencies(nodes, explicit_ids=frozenset(explicit_ids))

    def _problems(self, workflow: Workflow) -> Iterator[str]:
        if not self._entries:
            yield "the workflow has no steps; add at least one with add_step"
            return
        for step in self._steps:
            for problem in _find_code_problems(step):
                yield f"node {describe_value(step.id)}: {problem}"
        yield from find_problems(workflow)


def _normalize_ids(depends_on: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the ids as a tuple. A string is one id, not a sequence of letters."""
    if depends_on is None:
        return ()
    return (depends_on,) if isinstance(depends_on, str) else tuple(depends_on)


def _find_code_problems(step: Step) -> Iterator[str]:
    """Yields a problem for each argument of a wrong type. `core.validation` checks the graph."""
    # Any: no check has confirmed yet that the values have their annotated types.
    fn: Any = step.fn
    condition: Any = step.condition
    retry: Any = step.retry.policy
    if not callable(fn):
        yield f"fn: expected a function that takes ctx, got {describe_value(fn)}"
    if condition is not None and not callable(condition):
        yield f"condition: expected a function that takes ctx, got {describe_value(condition)}"
    elif condition is not None and is_async(condition):
        yield (
            "condition: expected a function without async, got an async function; move the await "
            "into fn"
        )
    if retry is not None and not isinstance(retry, RetryPolicy):
        yield f"retry: expected a RetryPolicy, got {describe_value(retry)}"
    if step.cache is not None:
        yield from _find_cache_problems(step.cache)
    for parent in _find_non_ids(step):
        yield f"depends_on: expected ids of steps, got {describe_value(parent)}"


def _find_cache_problems(cache: Any) -> Iterator[str]:
    if not isinstance(cache, StepCache):
        yield f"cache: expected a StepCache, got {describe_value(cache)}"
        return
    key: Any = cache.key
    if not callable(key):
        yield f"cache.key: expected a function that takes ctx, got {describe_value(key)}"
    elif is_async(key):
        yield "cache.key: expected a function without async, got an async function"
    if not CACHE_CHECKS["ttl_seconds"].fits(cache.ttl_s):
        expected = "a timedelta or a number above 0"
        yield f"cache.ttl: expected {expected}, got {describe_value(cache.ttl)}"


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
        when_not_met=_parse_member(WhenNotMet, step.when_not_met),
        retry=step.retry.resolve(retry),
        timeout_seconds=step.timeout_seconds,
        soft_timeout_seconds=step.soft_timeout_seconds,
        resource_tag=step.resource_tag,
    )


E = TypeVar("E", RunWhen, WhenNotMet, OnFailure)


def _parse_member(kind: type[E], name: str) -> E:
    """Returns the member of the enum with this name.

    Returns the name itself if there is no such member; validation then reports the name.
    """
    members = {str(member): member for member in kind}
    return members.get(name, name)  # type: ignore[arg-type]  # validation refuses it before use
