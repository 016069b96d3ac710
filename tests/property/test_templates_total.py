"""Templates are total: any text with any values gives a value or one of Runnel's errors."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runnel.core.templates.errors import (
    MissingValueError,
    TemplateError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.filters import FILTERS, TYPE_TESTS
from runnel.core.templates.jinja_syntax import parse_with_jinja
from runnel.core.templates.parser import ParsedExpression, parse_path
from runnel.core.templates.template import TemplateTree, compile_expression, compile_tree, is_true

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["12", "1.5", "-7", "a,b", ""])
)
KEYS = st.sampled_from(["a", "b", "input", "x-y", "0"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
SCOPES = st.dictionaries(KEYS, VALUES, max_size=5)

WORDS = (
    *("a", "b", "input", "nodes", "nodes['x-y']", "item", ".a", ".0", "[0]", "[-1]", "['b']", "."),
    *("and", "or", "not", "in", "is", "if", "else", "defined", "none", "true", "loop", "self"),
    *("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "//", "%", "**", "~", "|", ",", ":"),
    *("(", ")", "[", "]", "{", "}", "{{", "}}", "{%", "%}", "{#", "#}", "{{-", "-}}", "=", "!"),
    *("0", "1", "-2", "1.5", "1e400", "0x_f", "1_0", "1٣", "1٣.5", "9" * 30, "9" * 5000),
    *("'a'", '"b"', "''", "'", '"', "\\", r"'\d'", r"'\ud83d'", r"'\x4'", r"'\N{DASH}'", "é", "\0"),
    *(f"| {name}" for name in FILTERS),
    *(f"| {name}('a')" for name in FILTERS),
    *(f"is {name}" for name in TYPE_TESTS),
    *("| default(1)", "| replace('a', 'b')", "| round(2)", "\n", "\r\n", "not " * 60, "(" * 300),
)
SOURCES = st.lists(st.sampled_from(WORDS), max_size=10).map(" ".join) | st.text(max_size=30)


def well_formed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in"])
    filters = st.sampled_from(
        [
            *sorted(FILTERS.keys() - {"replace"}),
            "default(0)",
            "join('-')",
            "split('a')",
            "replace('a', 'bb')",
            "round(2)",
        ]
    )
    tests = st.sampled_from(["defined", "not defined", *TYPE_TESTS])
    return st.one_of(
        st.builds("({} {} {})".format, inner, operators, inner),
        st.builds("({} | {})".format, inner, filters),
        st.builds("({} | join({}))".format, inner, inner),
        st.builds("({} | replace({}, {}))".format, inner, inner, inner),
        st.builds("({} | round({}))".format, inner, inner),
        st.builds("({} is {})".format, inner, tests),
        st.builds("(not {})".format, inner),
        st.builds("(- {})".format, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'k': {}}}".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{}.a".format, inner),
        st.builds("{}[-1]".format, inner),
    )


ATOMS = st.sampled_from(
    ["a", "b.a", "a[0]", "input['b']", "nodes['x-y'].a", "1", "2.5", "'a'", "'12'", "none", "true"]
)
EXPRESSIONS = st.recursive(ATOMS, well_formed, max_leaves=8)


class Values:
    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def lookup(self, root: str) -> Any:
        if root not in self.values:
            raise MissingValueError(root, names=self.values)
        return self.values[root]


@given(source=SOURCES, scope=SCOPES)
def test_any_text_is_an_expression_or_refused(source: str, scope: dict[str, Any]) -> None:
    result = outcome(lambda: compile_expression(source).evaluate(Values(scope)))

    assert not isinstance(result, TemplateError) or str(result).startswith("condition: ")


@given(source=EXPRESSIONS, scope=SCOPES)
def test_any_expression_gives_json_or_one_of_two_errors(source: str, scope: dict[str, Any]) -> None:
    expression = compile_expression(source)
    before = json.dumps(scope)

    result = outcome(lambda: expression.evaluate(Values(scope)))

    assert json.dumps(scope) == before
    if isinstance(result, TemplateError):
        assert isinstance(result, MissingValueError | TemplateEvaluationError)
        assert result.template == source
    else:
        assert is_true(result) in (True, False)
        assert json.loads(json.dumps(result, allow_nan=False)) == result


TEXTS = st.lists(st.text(max_size=5) | SOURCES.map("{{{{ {} }}}}".format), max_size=3).map("".join)
TREES = st.recursive(
    TEXTS | SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(tree=TREES, scope=SCOPES)
def test_any_tree_resolves_or_is_refused_with_a_path(tree: Any, scope: dict[str, Any]) -> None:
    compiled = outcome(lambda: compile_tree(tree))
    result = compiled
    if isinstance(compiled, TemplateTree):
        result = outcome(lambda: compiled.resolve(Values(scope)))
        assert result is tree or not compiled.is_static

    assert not isinstance(result, TemplateError) or str(result).startswith("config")


@given(
    parts=st.lists(st.tuples(st.text("ab {}%#\r\n"), st.sampled_from(["a", "b.a", "a | d(1)"]))),
    scope=SCOPES,
)
def test_text_around_templates_stays_unchanged(
    parts: list[tuple[str, str]], scope: dict[str, Any]
) -> None:
    clean = [(text.replace("{", "("), source) for text, source in parts]
    template = "".join(f"{text}{{{{ {source} }}}}" for text, source in clean) + "."
    scope_values = {"a": "A", "b": {"a": "B"}}
    values = {"a": "A", "b.a": "B", "a | d(1)": "A"}

    resolved = compile_tree(template).resolve(Values(scope | scope_values))

    assert resolved == "".join(text + values[source] for text, source in clean) + "."


STEPS = st.sampled_from(
    (
        *(".a", ".b_1", "._x", ".0", ".12", "[0]", "[-0]", "[-3]", "[10]", "['x-y']", '["a b"]'),
        *(".and", ".not", ".true", ".in", "['it\"s']", '[""]', ".e5", ".0x1", "[007]", "[1_0]"),
        *("['é']", r"['\n']", "[1.5]", "[]", "()", " ", ".1e5", "['a' 'b']", "[true]", "|d", ".é"),
        *("['#{}']", ". a", "['_']", ".0.1", "[-1", "['{{']"),
    )
)
ROOTS = st.sampled_from(
    ["a", "_b", "nodes", "input", "and", "if", "else", "in", "is", "or", "not", "true", "None", "é"]
)


@given(root=ROOTS, steps=st.lists(STEPS, max_size=6))
def test_the_own_parser_for_paths_agrees_with_jinja(root: str, steps: list[str]) -> None:
    source = root + "".join(steps)

    quick = outcome(lambda: parse_path(source))
    slow = outcome(lambda: parse_with_jinja(source))

    if isinstance(quick, ParsedExpression):
        assert (quick.node, quick.references) == slow
    elif quick is not None:
        assert isinstance(slow, TemplateSyntaxError)


def outcome(attempt: Callable[[], Any]) -> Any:
    """Returns the result, or the template error that was raised. Any other error fails the test."""
    try:
        return attempt()
    except TemplateError as error:
        return error
