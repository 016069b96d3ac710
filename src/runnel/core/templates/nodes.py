"""What an expression is made of: small frozen nodes, each of which can evaluate itself.

Nothing here calls an attribute of a value: a step of a path is an item lookup in an object or list.
"""

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Protocol, TypeAlias

import msgspec

from runnel.core.templates.errors import (
    BUILT_BYTES_MAX,
    ITEM_BYTES,
    MissingValueError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.filters import FILTERS, TESTS, is_number, kind
from runnel.core.values import Json

# What a template refers to: a root (a node id, `input`, `item`, …) and a path below it.

Key: TypeAlias = str | int

RESERVED = frozenset({"input", "execution", "item", "nodes", "secrets"})
OPERATORS = frozenset({"and", "else", "if", "in", "is", "not", "or"})


class Reference(msgspec.Struct, frozen=True):
    """`fetch.result[0]` is root `fetch`, path `('result', 0)`.

    `nodes['x-y'].z` is root `x-y`, path `('z',)`: the same lookup as by a bare name, but
    `via_nodes` tells that the root can only be a node.
    """

    root: str
    path: tuple[Key, ...] = ()
    via_nodes: bool = False

    def __str__(self) -> str:
        root = f"nodes['{self.root}']" if self.via_nodes else self.root
        return path_text(root, self.path)


def reference_to(root: str, path: tuple[Key, ...]) -> Reference:
    """Raises TemplateSyntaxError when `nodes` is not followed by the id of a node."""
    if root in OPERATORS:
        raise TemplateSyntaxError(
            f"'{root}' is an operator; a node of that name is nodes['{root}']"
        )
    if root != "nodes":
        return Reference(root, path)
    if not path or not isinstance(path[0], str):
        raise TemplateSyntaxError("'nodes' must be followed by the id of a node: nodes['my-node']")
    if path[0] in RESERVED:
        raise TemplateSyntaxError(
            f"no node can be named '{path[0]}', the name is reserved; write {path[0]} for itself"
        )
    return Reference(path[0], path[1:], via_nodes=True)


def path_text(root: str, path: tuple[Key, ...]) -> str:
    """As a user would write it."""
    return root + "".join(map(_step_text, path))


def _step_text(key: Key) -> str:
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"['{key}']"
    return f"[{key}]"


# One evaluation: where its values come from, and how much it may still build.


class Scope(Protocol):
    """The values that a template may use.

    `lookup` is called only for a root that evaluation really reaches, and each time it is reached;
    it raises MissingValueError(root) when there is no such value. Values are shared, not copied:
    whoever holds a result must not change it.
    """

    def lookup(self, root: str) -> Json:
        """Raises MissingValueError."""


class Run:
    __slots__ = ("_left", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._left = BUILT_BYTES_MAX

    def spend(self, built: Json) -> None:
        """Count a new string or list; raises TemplateEvaluationError when it is too much."""
        self._left -= len(built) * (1 if isinstance(built, str) else ITEM_BYTES)
        if self._left < 0:
            raise TemplateEvaluationError(
                f"the texts and lists built here take more than {BUILT_BYTES_MAX:,} bytes "
                "together; compute them in a node and refer to its result"
            )


class Node(Protocol):
    def evaluate(self, run: Run) -> Json:
        """Raises TemplateEvaluationError for values that do not fit."""


class Literal(msgspec.Struct, frozen=True):
    value: Json

    def evaluate(self, run: Run) -> Json:
        return self.value


class Path(msgspec.Struct, frozen=True):
    reference: Reference

    def evaluate(self, run: Run) -> Json:
        reference = self.reference
        return _descend(run.scope.lookup(reference.root), reference.path, reference.root)


class Access(msgspec.Struct, frozen=True):
    """A path into something that is not itself a path: `(items | first).name`."""

    holder: Node
    path: tuple[Key, ...]

    def evaluate(self, run: Run) -> Json:
        return _descend(self.holder.evaluate(run), self.path, "(…)")


def _descend(value: Json, path: tuple[Key, ...], root: str) -> Json:
    for position, key in enumerate(path):
        if isinstance(key, str):
            if isinstance(value, dict) and key in value:
                value = value[key]
                continue
        elif isinstance(value, list) and -len(value) <= key < len(value):
            value = value[key]
            continue
        raise _missing(path_text(root, path[:position]), key, value)
    return value


def _missing(path: str, key: Key, value: Json) -> MissingValueError:
    if isinstance(value, dict):
        return MissingValueError(path, key=key, names=value)
    if isinstance(value, list):
        return MissingValueError(path, key=key, found=f"a list of length {len(value)}")
    return MissingValueError(path, key=key, found=kind(value))


class ListOf(msgspec.Struct, frozen=True):
    items: tuple[Node, ...]

    def evaluate(self, run: Run) -> Json:
        return [item.evaluate(run) for item in self.items]


class ObjectOf(msgspec.Struct, frozen=True):
    items: tuple[tuple[str, Node], ...]

    def evaluate(self, run: Run) -> Json:
        return {key: item.evaluate(run) for key, item in self.items}


class AllOf(msgspec.Struct, frozen=True):
    """`a and b`: the first false value, or the last one; what follows is not evaluated."""

    operands: tuple[Node, ...]

    def evaluate(self, run: Run) -> Json:
        value: Json = True
        for operand in self.operands:
            value = operand.evaluate(run)
            if not value:
                break
        return value


class AnyOf(msgspec.Struct, frozen=True):
    """`a or b`: the first true value, or the last one; what follows is not evaluated."""

    operands: tuple[Node, ...]

    def evaluate(self, run: Run) -> Json:
        value: Json = False
        for operand in self.operands:
            value = operand.evaluate(run)
            if value:
                break
        return value


class Negation(msgspec.Struct, frozen=True):
    operand: Node

    def evaluate(self, run: Run) -> Json:
        return not self.operand.evaluate(run)


class Minus(msgspec.Struct, frozen=True):
    operand: Node

    def evaluate(self, run: Run) -> Json:
        value = self.operand.evaluate(run)
        if not is_number(value):
            raise TemplateEvaluationError(f"'-' expects a number after it, got {kind(value)}")
        return -value


class Choice(msgspec.Struct, frozen=True):
    test: Node
    then: Node
    otherwise: Node

    def evaluate(self, run: Run) -> Json:
        chosen = self.then if self.test.evaluate(run) else self.otherwise
        return chosen.evaluate(run)


class Comparison(msgspec.Struct, frozen=True):
    """`a < b <= c` holds when each pair does, from left to right, up to the first that does not."""

    first: Node
    rest: tuple[tuple[str, Node], ...]

    def evaluate(self, run: Run) -> Json:
        left = self.first.evaluate(run)
        for operator, operand in self.rest:
            right = operand.evaluate(run)
            if not _holds(left, operator, right):
                return False
            left = right
        return True


EQUALITIES: Mapping[str, Callable[[Json, Json], bool]] = {"==": eq, "!=": ne}
ORDERS: Mapping[str, Callable[[Json, Json], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def _holds(left: Json, operator: str, right: Json) -> bool:
    if operator in EQUALITIES:
        return EQUALITIES[operator](left, right)
    if operator in ORDERS:
        strings = isinstance(left, str) and isinstance(right, str)
        if not strings and not (is_number(left) and is_number(right)):
            raise TemplateEvaluationError(
                f"'{operator}' compares two numbers or two strings, got {kind(left)} and "
                f"{kind(right)}; convert one with | int, | float or | string"
            )
        return ORDERS[operator](left, right)
    return _contains(right, left) is (operator == "in")


def _contains(holder: Json, value: Json) -> bool:
    if isinstance(holder, list):
        return value in holder
    if isinstance(holder, str | dict) and isinstance(value, str):
        return value in holder
    raise TemplateEvaluationError(
        "'in' looks for any value in a list, or for a string in a string or in the keys of an "
        f"object, got {kind(value)} in {kind(holder)}"
    )


class Applied(msgspec.Struct, frozen=True):
    filter: str
    operand: Node
    arguments: tuple[Node, ...]

    def evaluate(self, run: Run) -> Json:
        chosen = FILTERS[self.filter]
        value = self.operand.evaluate(run)
        result = chosen.apply(value, *(argument.evaluate(run) for argument in self.arguments))
        if chosen.builds:
            run.spend(result)
        return result


class Default(msgspec.Struct, frozen=True):
    operand: Node
    fallback: Node

    def evaluate(self, run: Run) -> Json:
        try:
            return self.operand.evaluate(run)
        except MissingValueError:
            return self.fallback.evaluate(run)


class Defined(msgspec.Struct, frozen=True):
    operand: Node

    def evaluate(self, run: Run) -> Json:
        try:
            self.operand.evaluate(run)
        except MissingValueError:
            return False
        return True


class Tested(msgspec.Struct, frozen=True):
    test: str
    operand: Node

    def evaluate(self, run: Run) -> Json:
        return TESTS[self.test](self.operand.evaluate(run))
