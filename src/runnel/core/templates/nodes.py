"""What an expression is made of: small frozen nodes, each of which can evaluate itself.

Nothing here calls an attribute of a value: a step of a path is an item lookup in an object or list.
"""

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Protocol

import msgspec

from runnel.core.json_types import Json
from runnel.core.templates.failures import MissingValueError, TemplateEvaluationError
from runnel.core.templates.filters import FILTERS
from runnel.core.templates.kinds import TESTS, is_number, kind
from runnel.core.templates.references import Key, Reference, path_text
from runnel.core.templates.run import Run


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
