"""Jinja parses, and only that: its tree is turned into nodes of ours, or refused.

No code of Jinja ever sees a value; this module is imported when the first expression needs it.
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
    check_count,
    checked_literal,
    known_names,
    reason_against,
)
from runnel.core.templates.filters import FILTERS, TESTS, is_number
from runnel.core.templates.nodes import Key, Reference, reference_to
from runnel.core.templates.parser import too_deep

_EXAMPLE = "expected an expression such as fetch.result[0].name"
_OPERATORS = {
    "eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=",
    "in": "in", "notin": "not in",
}  # fmt: skip

_DEFAULTS = frozenset({"d", "default"})
_FILTERS = _DEFAULTS | FILTERS.keys()

# Only the syntax is used: no filter, global or loader of this environment is ever reached.
_environment = jinja2.Environment(autoescape=False)  # noqa: S701 - nothing is rendered by it


def parse_with_jinja(source: str) -> tuple[ours.Node, frozenset[Reference]]:
    """Expects a source whose brackets have been checked; raises TemplateSyntaxError."""
    try:
        parser = Parser(_environment, source, state="variable")
        tree = parser.parse_expression()
        rest = parser.stream.current
        if not parser.stream.eos:
            raise TemplateSyntaxError(
                f"unexpected '{describe_token(rest)}' after the expression; {_EXAMPLE}"
            )
    except jinja2.TemplateSyntaxError as error:
        raise TemplateSyntaxError(f"{error.message}; {_EXAMPLE}") from None
    except (ValueError, SyntaxError) as error:
        # Jinja hands digits to Python as they are: too many, or not ASCII.
        raise TemplateSyntaxError(
            "a number that can't be read; write it in plain digits"
        ) from error
    except RecursionError:
        raise too_deep() from None
    converter = _Converter()
    node = converter.convert(tree)
    return node, frozenset(converter.references)


class _Converter:
    def __init__(self) -> None:
        self.references: set[Reference] = set()
        self._left = NODES_MAX
        self._depth = 0

    def convert(self, node: jinja.Node) -> ours.Node:
        self._left -= 1
        if self._left < 0 or self._depth >= DEPTH_MAX:
            raise TemplateSyntaxError(
                f"the expression is too large: at most {NODES_MAX} parts, {DEPTH_MAX} levels"
            )
        change = _CHANGES.get(type(node))
        if change is None:
            raise TemplateSyntaxError(reason_against(type(node).__name__))
        self._depth += 1
        changed = change(self, node)
        self._depth -= 1
        return changed

    def constant(self, node: jinja.Const) -> ours.Node:
        return ours.Literal(checked_literal(node.value))

    def path(self, node: jinja.Expr) -> ours.Node:
        # A loop, because a long path is a deep tree in Jinja.
        keys: list[Key] = []
        while isinstance(node, jinja.Getattr | jinja.Getitem):
            keys.append(node.attr if isinstance(node, jinja.Getattr) else _index(node.arg))
            node = node.node
        keys.reverse()
        if isinstance(node, jinja.Name):
            return self.reference(node.name, tuple(keys))
        return ours.Access(self.convert(node), tuple(keys))

    def reference(self, root: str, path: tuple[Key, ...]) -> ours.Node:
        reference = reference_to(root, path)
        self.references.add(reference)
        return ours.Path(reference)

    def list(self, node: jinja.List) -> ours.Node:
        return ours.ListOf(tuple(map(self.convert, node.items)))

    def object(self, node: jinja.Dict) -> ours.Node:
        return ours.ObjectOf(
            tuple((_object_key(pair.key), self.convert(pair.value)) for pair in node.items)
        )

    def all_of(self, node: jinja.And) -> ours.Node:
        return ours.AllOf(tuple(map(self.convert, _flat(node))))

    def any_of(self, node: jinja.Or) -> ours.Node:
        return ours.AnyOf(tuple(map(self.convert, _flat(node))))

    def negation(self, node: jinja.Not) -> ours.Node:
        return ours.Negation(self.convert(node.node))

    def minus(self, node: jinja.Neg) -> ours.Node:
        operand = self.convert(node.node)
        if isinstance(operand, ours.Literal) and is_number(operand.value):
            return ours.Literal(-operand.value)
        return ours.Minus(operand)

    def comparison(self, node: jinja.Compare) -> ours.Node:
        first = self.convert(node.expr)
        rest = ((_OPERATORS[part.op], self.convert(part.expr)) for part in node.ops)
        return ours.Comparison(first, tuple(rest))

    def choice(self, node: jinja.CondExpr) -> ours.Node:
        if node.expr2 is None:
            raise TemplateSyntaxError("'if' needs an 'else': a if test else b")
        test, then = self.convert(node.test), self.convert(node.expr1)
        return ours.Choice(test=test, then=then, otherwise=self.convert(node.expr2))

    def filtered(self, node: jinja.Filter) -> ours.Node:
        name = node.name
        if name not in _FILTERS or node.node is None:
            known = known_names(name, sorted(_FILTERS), intro="there are", most=len(_FILTERS))
            raise TemplateSyntaxError(f"there is no filter '{name}'{known}")
        arguments = tuple(map(self.convert, _positional(node)))
        operand = self.convert(node.node)
        if name in _DEFAULTS:
            check_count(name, len(arguments), least=1, most=1)
            return ours.Default(operand, arguments[0])
        chosen = FILTERS[name]
        check_count(name, len(arguments), least=chosen.arguments_min, most=chosen.arguments_max)
        return ours.Applied(name, operand, arguments)

    def tested(self, node: jinja.Test) -> ours.Node:
        name = node.name
        if name != "defined" and name not in TESTS:
            known = known_names(name, sorted(["defined", *TESTS]), intro="there are")
            raise TemplateSyntaxError(f"there is no test 'is {name}'{known}")
        check_count(f"is {name}", len(_positional(node)), least=0, most=0)
        operand = self.convert(node.node)
        return ours.Defined(operand) if name == "defined" else ours.Tested(name, operand)


# Any, because each method takes exactly the class that it stands next to.
_CHANGES: Mapping[type[jinja.Node], Callable[[_Converter, Any], ours.Node]] = {
    jinja.And: _Converter.all_of,
    jinja.Compare: _Converter.comparison,
    jinja.CondExpr: _Converter.choice,
    jinja.Const: _Converter.constant,
    jinja.Dict: _Converter.object,
    jinja.Filter: _Converter.filtered,
    jinja.Getattr: _Converter.path,
    jinja.Getitem: _Converter.path,
    jinja.List: _Converter.list,
    jinja.Name: _Converter.path,
    jinja.Neg: _Converter.minus,
    jinja.Not: _Converter.negation,
    jinja.Or: _Converter.any_of,
    jinja.Test: _Converter.tested,
}


def _index(node: jinja.Expr) -> Key:
    is_negative = isinstance(node, jinja.Neg)
    inner = node.node if isinstance(node, jinja.Neg) else node
    key = inner.value if isinstance(inner, jinja.Const) else None
    if isinstance(key, int) and not isinstance(key, bool):
        checked_literal(key)
        return -key if is_negative else key
    if isinstance(key, str) and not is_negative:
        checked_literal(key)
        return key
    if isinstance(node, jinja.Slice):
        raise TemplateSyntaxError(reason_against("Slice"))
    raise TemplateSyntaxError("an index is written out: ['name'], [0] or [-1], not computed")


def _object_key(node: jinja.Expr) -> str:
    if isinstance(node, jinja.Const) and isinstance(node.value, str):
        return str(checked_literal(node.value))
    raise TemplateSyntaxError("a key of an object is a string in quotes: {'name': value}")


def _flat(node: jinja.And | jinja.Or) -> list[jinja.Expr]:
    """The operands of `a and b and c`, which is `(a and b) and c` in Jinja, so deep when long."""
    operands = []
    left: jinja.Expr = node
    while isinstance(left, jinja.And | jinja.Or) and type(left) is type(node):
        operands.append(left.right)
        left = left.left
    return [left, *reversed(operands)]


def _positional(node: jinja.Filter | jinja.Test) -> list[jinja.Expr]:
    if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
        raise TemplateSyntaxError(f"'{node.name}' takes plain values only: no name=, * or **")
    return node.args
