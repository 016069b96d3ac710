"""One run of a workflow's body: every call of a task in it becomes a node."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import msgspec

from runnel.authoring.inference import infer_dependencies
from runnel.authoring.tracing.options import fields_of
from runnel.authoring.tracing.placeholders import Placeholder, Result, path_of, root_of
from runnel.authoring.tracing.spots import Spot, here
from runnel.authoring.tracing.writing import Writer
from runnel.core.checks.wording import shown
from runnel.core.ids import NodeId
from runnel.core.json_types import Json
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import CLEAN_UP, RunWhen
from runnel.core.templates import RESERVED, TemplateSyntaxError, compile_expression
from runnel.core.workflow import Node, Workflow

NO_MAP = object()
Arrange = Callable[[Writer], dict[str, Json]]
_current: ContextVar["Trace | None"] = ContextVar("trace", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A task as it is about to be called; `label` is what messages call it."""

    label: str
    handler: str
    options: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[object, ...] = ()
    after: tuple[object, ...] = ()
    child: Workflow | None = None


class Trace:
    """`around` is the trace of the workflow that calls this one."""

    def __init__(self, name: str, retry: RetryPolicy, around: "Trace | None" = None) -> None:
        self.name = name
        self.retry = retry
        self.around = around
        self.nodes: list[Node] = []
        self._positions: dict[NodeId, int] = {}
        self._skippable: set[NodeId] = set()
        self._numbers: dict[str, int] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def may_miss(self, root: str, *, is_lenient: bool) -> bool:
        """Whether a node may be skipped because of a condition, its own or one further up.

        Or, for those that run whatever happened before, whether it is a node at all.
        """
        return root in (self._positions if is_lenient else self._skippable)

    def call(self, asked: Asked, arrange: Arrange, items: object = NO_MAP) -> Result:
        """Adds a node; `items` is the list of a map."""
        run_when = RunWhen(asked.options.get("run_when", RunWhen.DEFAULT))
        is_lenient = run_when in CLEAN_UP
        node = Node(
            id=self._id(asked),
            handler=asked.handler,
            config=arrange(Writer(self, "", is_lenient=is_lenient)),
            condition=self._condition(asked, is_lenient=is_lenient),
            for_each=None if items is NO_MAP else self._items(asked, items, is_lenient=is_lenient),
            concurrency_key=self._key(asked),
            child=asked.child,
            **fields_of(asked.options, self.retry),
        )
        found = {*infer_dependencies(node, self._positions), *self._after(asked)}
        parents = tuple(sorted(found, key=self._positions.__getitem__))
        if _may_skip(node, parents, self._skippable):
            self._skippable.add(node.id)
        self._positions[node.id] = len(self.nodes)
        self.nodes.append(_with_parents(node, parents))
        return Result(self, node.id)

    def output(self, returned: object, spot: Spot) -> Json:
        """None when the engine gives the same by itself: the result of the only last node."""
        if isinstance(returned, Result) and root_of(returned) in self._positions:
            parents = {parent for node in self.nodes for parent in node.dependencies}
            leaves = [node.id for node in self.nodes if node.id not in parents]
            if leaves == [root_of(returned)]:
                return None
        return Writer(self, "what it returns", spot=lambda: spot).tree(returned)

    def _id(self, asked: Asked) -> NodeId:
        """`fetch`, then `fetch_2`; the id that was asked for is taken as it is."""
        if "id" in asked.options:
            node_id = NodeId(asked.options["id"])
            if node_id in self._positions:
                raise here().refusal(
                    f"gives the id '{node_id}' to a second node; give each its own"
                )
            return node_id
        name = str(asked.options.get("name", asked.label))
        first = f"{name}_node" if name in RESERVED else name
        number = self._numbers.get(first, 0) + 1
        while (node_id := NodeId(first if number == 1 else f"{first}_{number}")) in self._positions:
            number += 1
        self._numbers[first] = number
        return node_id

    def _condition(self, asked: Asked, *, is_lenient: bool) -> str | None:
        writer = Writer(self, f"the condition of {asked.label}", is_lenient=is_lenient)
        sources = [
            writer.plain(condition) if isinstance(condition, str) else writer.source(condition)
            for condition in asked.conditions
        ]
        return sources[0] if len(sources) == 1 else " and ".join(f"({s})" for s in sources) or None

    def _items(self, asked: Asked, items: object, *, is_lenient: bool) -> str:
        if not isinstance(items, Placeholder | list | tuple):
            raise here().refusal(
                f"maps {asked.label} over {shown(items)}; expected a list, or a result that is one"
            )
        what = f"the list of {asked.label}.map"
        absent = "[]" if isinstance(items, Placeholder) else "none"
        source = Writer(self, what, is_lenient=is_lenient, absent=absent).source(items)
        try:
            compile_expression(source, where="for_each")
        except TemplateSyntaxError:
            raise here().refusal(
                f"maps {asked.label} over a list that is too long to be written out; let a task "
                "return it, or pass it as input"
            ) from None
        return source

    def _key(self, asked: Asked) -> str | None:
        """A text may hold templates, as in a document."""
        key = asked.options.get("concurrency_key")
        if not isinstance(key, Placeholder):
            return key
        return str(Writer(self, f"the concurrency_key of {asked.label}").tree(key))

    def _after(self, asked: Asked) -> Iterator[NodeId]:
        pending = list(asked.after)
        while pending:
            value = pending.pop()
            holder = path_of(value)[0] if isinstance(value, Placeholder) else None
            if isinstance(value, list | tuple):
                pending += value
            elif isinstance(holder, Result) and root_of(holder) in self._positions:
                yield NodeId(root_of(holder))
            else:
                raise here().refusal(
                    f"wants {asked.label} after something that is no result of this workflow: "
                    "expected what calls of tasks have returned"
                )


def current() -> Trace | None:
    """None outside of a workflow's body."""
    return _current.get()


def _with_parents(node: Node, parents: tuple[NodeId, ...]) -> Node:
    return msgspec.structs.replace(node, dependencies=parents) if parents else node


def _may_skip(node: Node, parents: tuple[NodeId, ...], skippable: set[NodeId]) -> bool:
    """A node is skipped by its own condition, or by what its parents came to."""
    if node.condition is not None:
        return True
    skipped = [parent in skippable for parent in parents]
    if node.run_when is RunWhen.DEFAULT:
        return bool(skipped) and all(skipped)
    if node.run_when is RunWhen.ALL_COMPLETED:
        return any(skipped)
    return bool(skipped) and node.run_when is RunWhen.ONE_FAILED
