"""Parses expressions with Jinja and converts the result into Runnel's own expression nodes.

Jinja evaluates nothing. The parser imports this module when the first expression needs Jinja.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jinja2
from jinja2 import nodes as jinja
from jinja2.lexer import describe_token
from jinja2.parser import Parser

from runnel.core.templates import nodes as ours
from runnel.core.templates.errors import (
    DEPTH_MAX,
    NODES_MAX,
    TemplateSyntaxError,
    check_argument_count,
    check_literal,
    explain_unsupported,
    format_known_names,
)
from runnel.core.templates.filters import FILTERS, TYPE_TESTS
from runnel.core.templates.nodes import PathKey, TemplateReference, make_reference
from runnel.core.templates.parser import make_too_deep_error
from runnel.core.values import is_number

_EXAMPLE = "expected an expression such as fetch.result[0].name"
_OPERATORS = {
    "eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=",
    "in": "in", "notin": "not in",
}  # fmt: skip

_DEFAULT_FILTERS = frozenset({"d", "default"})
_FILTER_NAMES = _DEFAULT_FILTERS | FILTERS.keys()

# Runnel uses only the syntax of this environment and never calls its filters, globals or loaders.
_environment = jinja2.Environment(autoescape=False)  # noqa: S701 - it renders nothing


def parse_with_jinja(source: str) -> tuple[ours.ExpressionNode, frozenset[TemplateReference]]:
    """Returns the parsed expression and its references.

    The caller has checked the brackets of the source. Raises TemplateSyntaxError for invalid
    syntax.
    """
    try:
        parser = Parser(_environment, source, state="variable")
        tree = parser.parse_expression()
        next_token = parser.stream.current
        if not parser.stream.eos:
            raise TemplateSyntaxError(
                f"unexpected '{describe_token(next_token)}' after the expression; {_EXAMPLE}"
            )
    except jinja2.TemplateSyntaxError as error:
        raise TemplateSyntaxError(f"{error.message}; {_EXAMPLE}") from None
    except (ValueError, SyntaxError) as error:
        # Jinja passes digits to Python unchecked. A number may have too many digits, or digits that
        # are not ASCII.
        raise TemplateSyntaxError(
            "a number that can't be read; write it in plain digits"
        ) from error
    except RecursionError:
        raise make_too_deep_error() from None
    converter = _Converter()
    node = converter.convert(tree)
    return node, frozenset(converter.references)


class _Converter:
    """Converts a Jinja tree and collects its references.

    Refuses a tree that is too large or too deep.
    """

    def __init__(self) -> None:
        self.references: set[TemplateReference] = set()
        self._nodes_left = NODES_MAX
        self._depth = 0

    def convert(self, node: jinja.Node) -> ours.ExpressionNode:
        self._nodes_left -= 1
        if self._nodes_left < 0 or self._depth >= DEPTH_MAX:
            raise TemplateSyntaxError(
                f"the expression is too large: at most {NODES_MAX} parts, {DEPTH_MAX} levels"
            )
        convert_node = _CONVERTERS.get(type(node))
        if convert_node is None:
            raise TemplateSyntaxError(explain_unsupported(type(node).__name__))
        self._depth += 1
        converted = convert_node(self, node)
        self._depth -= 1
        return converted

    def convert_constant(self, node: jinja.Const) -> ours.ExpressionNode:
        return ours.Literal(check_literal(node.value))

    def convert_path(self, node: jinja.Expr) -> ours.ExpressionNode:
        # A loop instead of recursion, because a long path is a deep tree in Jinja.
        keys: list[PathKey] = []
        while isinstance(node, jinja.Getattr | jinja.Getitem):
            keys.append(node.attr if isinstance(node, jinja.Getattr) else _convert_index(node.arg))
            node = node.node
        keys.reverse()
        if isinstance(node, jinja.Name):
            return self.add_reference(node.name, tuple(keys))
        if isinstance(node, jinja.Const) and type(node.value) is int:
            # A number has no keys, so `1.result` is the output of the node '1'.
            return self.add_reference("nodes", (str(node.value), *keys))
        return ours.ItemAccess(self.convert(node), tuple(keys))

    def add_reference(self, root: str, path: tuple[PathKey, ...]) -> ours.ExpressionNode:
        reference = make_reference(root, path)
        self.references.add(reference)
        return ours.PathLookup(reference)

    def convert_list(self, node: jinja.List) -> ours.ExpressionNode:
        return ours.ListLiteral(tuple(map(self.convert, node.items)))

    def convert_object(self, node: jinja.Dict) -> ours.ExpressionNode:
        return ours.ObjectLiteral(
            tuple((_convert_object_key(pair.key), self.convert(pair.value)) for pair in node.items)
        )

    def convert_and(self, node: jinja.And) -> ours.ExpressionNode:
        return ours.AndExpression(tuple(map(self.convert, _flatten_operands(node))))

    def convert_or(self, node: jinja.Or) -> ours.ExpressionNode:
        return ours.OrExpression(tuple(map(self.convert, _flatten_operands(node))))

    def convert_not(self, node: jinja.Not) -> ours.ExpressionNode:
        return ours.NotExpression(self.convert(node.node))

    def convert_minus(self, node: jinja.Neg) -> ours.ExpressionNode:
        operand = self.convert(node.node)
        if isinstance(operand, ours.Literal) and is_number(operand.value):
            return ours.Literal(-operand.value)
        return ours.UnaryMinus(operand)

    def convert_comparison(self, node: jinja.Compare) -> ours.ExpressionNode:
        first = self.convert(node.expr)
        comparisons = ((_OPERATORS[part.op], self.convert(part.expr)) for part in node.ops)
        return ours.Comparison(first, tuple(comparisons))

    def convert_conditional(self, node: jinja.CondExpr) -> ours.ExpressionNode:
        if node.expr2 is None:
            raise TemplateSyntaxError("'if' needs an 'else': a if test else b")
        test, result = self.convert(node.test), self.convert(node.expr1)
        return ours.ConditionalExpression(
            test=test, then=result, otherwise=self.convert(node.expr2)
        )

    def convert_filter(self, node: jinja.Filter) -> ours.ExpressionNode:
        name = node.name
        if name not in _FILTER_NAMES or node.node is None:
            hint = format_known_names(
                name, sorted(_FILTER_NAMES), intro="there are", shown_max=len(_FILTER_NAMES)
            )
            raise TemplateSyntaxError(f"there is no filter '{name}'{hint}")
        arguments = tuple(map(self.convert, _list_positional_arguments(node)))
        operand = self.convert(node.node)
        if name in _DEFAULT_FILTERS:
            check_argument_count(name, len(arguments), count_min=1, count_max=1)
            return ours.DefaultFilter(operand, arguments[0])
        filter_ = FILTERS[name]
        check_argument_count(
            name, len(arguments), count_min=filter_.arguments_min, count_max=filter_.arguments_max
        )
        return ours.FilterCall(name, operand, arguments)

    def convert_test(self, node: jinja.Test) -> ours.ExpressionNode:
        name = node.name
        if name != "defined" and name not in TYPE_TESTS:
            hint = format_known_names(name, sorted(["defined", *TYPE_TESTS]), intro="there are")
            raise TemplateSyntaxError(f"there is no test 'is {name}'{hint}")
        check_argument_count(
            f"is {name}", len(_list_positional_arguments(node)), count_min=0, count_max=0
        )
        operand = self.convert(node.node)
        return ours.DefinedTest(operand) if name == "defined" else ours.TypeTest(name, operand)


# The parameter type is Any, because each method takes only the class of its key.
_CONVERTERS: Mapping[type[jinja.Node], Callable[[_Converter, Any], ours.ExpressionNode]] = {
    jinja.And: _Converter.convert_and,
    jinja.Compare: _Converter.convert_comparison,
    jinja.CondExpr: _Converter.convert_conditional,
    jinja.Const: _Converter.convert_constant,
    jinja.Dict: _Converter.convert_object,
    jinja.Filter: _Converter.convert_filter,
    jinja.Getattr: _Converter.convert_path,
    jinja.Getitem: _Converter.convert_path,
    jinja.List: _Converter.convert_list,
    jinja.Name: _Converter.convert_path,
    jinja.Neg: _Converter.convert_minus,
    jinja.Not: _Converter.convert_not,
    jinja.Or: _Converter.convert_or,
    jinja.Test: _Converter.convert_test,
}


def _convert_index(node: jinja.Expr) -> PathKey:
    is_negative = isinstance(node, jinja.Neg)
    inner = node.node if isinstance(node, jinja.Neg) else node
    key = inner.value if isinstance(inner, jinja.Const) else None
    if isinstance(key, int) and not isinstance(key, bool):
        check_literal(key)
        return -key if is_negative else key
    if isinstance(key, str) and not is_negative:
        check_literal(key)
        return key
    if isinstance(node, jinja.Slice):
        raise TemplateSyntaxError(explain_unsupported("Slice"))
    raise TemplateSyntaxError("an index can't be computed; write ['name'], [0] or [-1]")


def _convert_object_key(node: jinja.Expr) -> str:
    if isinstance(node, jinja.Const) and isinstance(node.value, str):
        return str(check_literal(node.value))
    raise TemplateSyntaxError("a key of an object is a string in quotes: {'name': value}")


def _flatten_operands(node: jinja.And | jinja.Or) -> list[jinja.Expr]:
    """Returns the operands of `a and b and c` as one list.

    In Jinja, the expression is the nested `(a and b) and c`.
    """
    operands = []
    operand: jinja.Expr = node
    while isinstance(operand, jinja.And | jinja.Or) and type(operand) is type(node):
        operands.append(operand.right)
        operand = operand.left
    return [operand, *reversed(operands)]


def _list_positional_arguments(node: jinja.Filter | jinja.Test) -> list[jinja.Expr]:
    if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
        raise TemplateSyntaxError(f"'{node.name}' takes plain values only: no name=, * or **")
    return node.args
