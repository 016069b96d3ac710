"""The nodes of parsed expressions, their evaluation, and references to values.

An evaluation never accesses a Python attribute of a value. Each step of a path is a lookup in an
object or list.
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
from runnel.core.templates.filters import FILTERS, TYPE_TESTS, describe_kind
from runnel.core.values import Json, is_number

# -- references: a root (a node id, `input`, `item`, …) and a path below it ----------------

PathKey: TypeAlias = str | int

RESERVED_NAMES = frozenset({"input", "execution", "item", "nodes", "secrets"})
# The reserved name that a node may have: validation requires that its output is the input of the
# execution, so both meanings of the name are the same value.
INPUT_NODE = "input"
OPERATOR_WORDS = frozenset({"and", "else", "if", "in", "is", "not", "or"})


class TemplateReference(msgspec.Struct, frozen=True):
    """A reference in a template.

    `fetch.result[0]` has the root `fetch` and the path `('result', 0)`.

    `nodes['x-y'].z` has the root `x-y` and the path `('z',)`. A lookup through `nodes` is the same
    as one by a plain name. `via_nodes` means that the root must be a node.
    """

    root: str
    path: tuple[PathKey, ...] = ()
    via_nodes: bool = False

    def __str__(self) -> str:
        root = f"nodes['{self.root}']" if self.via_nodes else self.root
        return format_path(root, self.path)


def make_reference(root: str, path: tuple[PathKey, ...]) -> TemplateReference:
    """Returns the reference to `root`, such as a node, and to the path below it.

    Raises TemplateSyntaxError if `nodes` is not followed by the id of a node.
    """
    if root in OPERATOR_WORDS:
        raise TemplateSyntaxError(
            f"'{root}' is an operator; a node of that name is nodes['{root}']"
        )
    if root != "nodes":
        return TemplateReference(root, path)
    if not path:
        raise TemplateSyntaxError("'nodes' must be followed by the id of a node: nodes['my-node']")
    node_id = str(path[0])  # nodes[1] and nodes.1 are the node '1'
    if node_id in RESERVED_NAMES and node_id != INPUT_NODE:
        raise TemplateSyntaxError(
            f"no node can be named '{node_id}', the name is reserved; write {node_id} alone"
        )
    return TemplateReference(node_id, path[1:], via_nodes=True)


def format_path(root: str, path: tuple[PathKey, ...]) -> str:
    """Returns the path as a user would write it."""
    return root + "".join(map(_format_step, path))


def _format_step(key: PathKey) -> str:
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"['{key}']"
    return f"[{key}]"


# -- one evaluation: the source of its values, and its size limit --------------------------


class TemplateScope(Protocol):
    """The values that a template may use.

    An evaluation calls `lookup` each time it reaches a root, and only for roots that it reaches.
    Values are shared, not copied, so the caller must not change a result.
    """

    def lookup(self, root: str) -> Json:
        """Returns the value of a root. Raises MissingValueError(root) if there is no such value."""


class EvaluationContext:
    """The scope of one evaluation, and the number of bytes that the evaluation may still build."""

    __slots__ = ("_bytes_remaining", "scope")

    def __init__(self, scope: TemplateScope) -> None:
        self.scope = scope
        self._bytes_remaining = BUILT_BYTES_MAX

    def charge_built_bytes(self, built: Json) -> None:
        """Counts the size of a new string or list.

        Raises TemplateEvaluationError if the total is too large.
        """
        self._bytes_remaining -= len(built) * (1 if isinstance(built, str) else ITEM_BYTES)
        if self._bytes_remaining < 0:
            raise TemplateEvaluationError(
                f"the texts and lists built here take more than {BUILT_BYTES_MAX:,} bytes "
                "together; compute them in a node and refer to its result"
            )


class ExpressionNode(Protocol):
    """A node of a parsed expression."""

    def evaluate(self, context: EvaluationContext) -> Json:
        """Returns the value of the node.

        Raises TemplateEvaluationError if the type of a value does not fit.
        """


class Literal(msgspec.Struct, frozen=True):
    value: Json

    def evaluate(self, context: EvaluationContext) -> Json:
        return self.value


class PathLookup(msgspec.Struct, frozen=True):
    reference: TemplateReference

    def evaluate(self, context: EvaluationContext) -> Json:
        reference = self.reference
        return _descend(context.scope.lookup(reference.root), reference.path, reference.root)


class ItemAccess(msgspec.Struct, frozen=True):
    """A path into the value of an expression, as in `(items | first).name`."""

    holder: ExpressionNode
    path: tuple[PathKey, ...]

    def evaluate(self, context: EvaluationContext) -> Json:
        return _descend(self.holder.evaluate(context), self.path, "(…)")


def _descend(value: Json, path: tuple[PathKey, ...], root: str) -> Json:
    for position, key in enumerate(path):
        if isinstance(key, str):
            if isinstance(value, dict) and key in value:
                value = value[key]
                continue
        elif isinstance(value, list) and -len(value) <= key < len(value):
            value = value[key]
            continue
        elif isinstance(value, dict) and str(key) in value:
            value = value[str(key)]
            continue
        raise _make_missing_error(format_path(root, path[:position]), key, value)
    return value


def _make_missing_error(path: str, key: PathKey, value: Json) -> MissingValueError:
    if isinstance(value, dict):
        return MissingValueError(path, key=key, names=value)
    if isinstance(value, list):
        return MissingValueError(path, key=key, found=f"a list of length {len(value)}")
    return MissingValueError(path, key=key, found=describe_kind(value))


def evaluate_or_null(node: ExpressionNode, context: EvaluationContext) -> Json:
    """Returns the value of the node, and null for a value of a skipped node.

    Callers are those places where null has a meaning: a value alone, an item of a list or object,
    and a value that is tested or compared by == and !=.
    """
    try:
        return node.evaluate(context)
    except MissingValueError as error:
        if error.stands_for_null and isinstance(node, PathLookup):
            return None
        raise


class ListLiteral(msgspec.Struct, frozen=True):
    items: tuple[ExpressionNode, ...]

    def evaluate(self, context: EvaluationContext) -> Json:
        return [evaluate_or_null(item, context) for item in self.items]


class ObjectLiteral(msgspec.Struct, frozen=True):
    items: tuple[tuple[str, ExpressionNode], ...]

    def evaluate(self, context: EvaluationContext) -> Json:
        return {key: evaluate_or_null(item, context) for key, item in self.items}


class AndExpression(msgspec.Struct, frozen=True):
    """`a and b`: the first false value, or the last value if all are true.

    Operands after the first false value are not evaluated.
    """

    operands: tuple[ExpressionNode, ...]

    def evaluate(self, context: EvaluationContext) -> Json:
        value: Json = True
        for operand in self.operands:
            value = evaluate_or_null(operand, context)
            if not value:
                break
        return value


class OrExpression(msgspec.Struct, frozen=True):
    """`a or b`: the first true value, or the last value if all are false.

    Operands after the first true value are not evaluated.
    """

    operands: tuple[ExpressionNode, ...]

    def evaluate(self, context: EvaluationContext) -> Json:
        value: Json = False
        for operand in self.operands:
            value = evaluate_or_null(operand, context)
            if value:
                break
        return value


class NotExpression(msgspec.Struct, frozen=True):
    operand: ExpressionNode

    def evaluate(self, context: EvaluationContext) -> Json:
        return not evaluate_or_null(self.operand, context)


class UnaryMinus(msgspec.Struct, frozen=True):
    operand: ExpressionNode

    def evaluate(self, context: EvaluationContext) -> Json:
        value = self.operand.evaluate(context)
        if not is_number(value):
            raise TemplateEvaluationError(
                f"'-' expects a number after it, got {describe_kind(value)}"
            )
        return -value


class ConditionalExpression(msgspec.Struct, frozen=True):
    test: ExpressionNode
    then: ExpressionNode
    otherwise: ExpressionNode

    def evaluate(self, context: EvaluationContext) -> Json:
        chosen = self.then if evaluate_or_null(self.test, context) else self.otherwise
        return chosen.evaluate(context)


class Comparison(msgspec.Struct, frozen=True):
    """`a < b <= c` holds if each pair holds.

    The evaluation stops at the first pair that does not hold.
    """

    first: ExpressionNode
    comparisons: tuple[tuple[str, ExpressionNode], ...]

    def evaluate(self, context: EvaluationContext) -> Json:
        evaluate = evaluate_or_null if self._is_equality else _evaluate_strictly
        left_value = evaluate(self.first, context)
        for operator, operand in self.comparisons:
            right_value = evaluate(operand, context)
            if not _compare(left_value, operator, right_value):
                return False
            left_value = right_value
        return True

    @property
    def _is_equality(self) -> bool:
        return all(operator in EQUALITY_OPERATORS for operator, _ in self.comparisons)


def _evaluate_strictly(node: ExpressionNode, context: EvaluationContext) -> Json:
    return node.evaluate(context)


EQUALITY_OPERATORS: Mapping[str, Callable[[Json, Json], bool]] = {"==": eq, "!=": ne}
ORDER_OPERATORS: Mapping[str, Callable[[Json, Json], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def _compare(left_value: Json, operator: str, right_value: Json) -> bool:
    if operator in EQUALITY_OPERATORS:
        return EQUALITY_OPERATORS[operator](left_value, right_value)
    if operator in ORDER_OPERATORS:
        strings = isinstance(left_value, str) and isinstance(right_value, str)
        if not strings and not (is_number(left_value) and is_number(right_value)):
            raise TemplateEvaluationError(
                f"'{operator}' compares two numbers or two strings, got "
                f"{describe_kind(left_value)} and {describe_kind(right_value)}; "
                "convert one with | int, | float or | string"
            )
        return ORDER_OPERATORS[operator](left_value, right_value)
    return _contains(right_value, left_value) is (operator == "in")


def _contains(holder: Json, value: Json) -> bool:
    if isinstance(holder, list):
        return value in holder
    if isinstance(holder, str | dict) and isinstance(value, str):
        return value in holder
    raise TemplateEvaluationError(
        "'in' expects any value in a list, or a string in a string or in the keys of an "
        f"object, got {describe_kind(value)} in {describe_kind(holder)}"
    )


class FilterCall(msgspec.Struct, frozen=True):
    filter: str
    operand: ExpressionNode
    arguments: tuple[ExpressionNode, ...]

    def evaluate(self, context: EvaluationContext) -> Json:
        chosen = FILTERS[self.filter]
        value = self.operand.evaluate(context)
        result = chosen.apply(value, *(argument.evaluate(context) for argument in self.arguments))
        if chosen.builds_new_value:
            context.charge_built_bytes(result)
        return result


class DefaultFilter(msgspec.Struct, frozen=True):
    operand: ExpressionNode
    fallback: ExpressionNode

    def evaluate(self, context: EvaluationContext) -> Json:
        try:
            return self.operand.evaluate(context)
        except MissingValueError:
            return self.fallback.evaluate(context)


class DefinedTest(msgspec.Struct, frozen=True):
    operand: ExpressionNode

    def evaluate(self, context: EvaluationContext) -> Json:
        try:
            self.operand.evaluate(context)
        except MissingValueError:
            return False
        return True


class TypeTest(msgspec.Struct, frozen=True):
    test: str
    operand: ExpressionNode

    def evaluate(self, context: EvaluationContext) -> Json:
        return TYPE_TESTS[self.test](evaluate_or_null(self.operand, context))
