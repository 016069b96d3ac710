"""Rules of templates and conditions, as tables."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from runnel.core.templates.errors import (
    MissingValueError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.nodes import TemplateReference
from runnel.core.templates.template import compile_expression, compile_tree, is_true


class Values:
    """A scope over a plain mapping that records the roots that were looked up."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.asked: list[str] = []

    def lookup(self, root: str) -> Any:
        self.asked.append(root)
        if root not in self.values:
            raise MissingValueError(root, names=sorted(self.values))
        return self.values[root]


FETCH = {
    "result": [{"name": "a", "tags": ["x", "y"]}, {"name": "b", "tags": []}],
    "status": "ok",
    "count": 3,
    "ratio": 2.5,
    "nothing": None,
    "_hidden": "seen",
    "items": "an item, not a method",
}
SCOPE = {
    "fetch": FETCH,
    "input": {"url": "http://x", "flag": True},
    "item": 7,
    "x-y": {"z": 5},
    "big": "x" * 1024 * 1024,
    "fat": "x" * (1024 * 1024 - 2),
    "long": list(range(100_001)),
}


def evaluated(source: str) -> Any:
    return compile_expression(source).evaluate(Values(SCOPE))


def resolved(value: Any) -> Any:
    return compile_tree(value).resolve(Values(SCOPE))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("fetch.count", 3),
        ("fetch['count']", 3),
        ("fetch.result[0].name", "a"),
        ("fetch.result.0.tags.1", "y"),
        ("fetch.result[-1]['name']", "b"),
        ("fetch._hidden", "seen"),
        ("fetch.items", "an item, not a method"),
        ("item", 7),
        ("nodes['x-y'].z", 5),
        ("nodes.fetch.count", 3),
        ("(fetch.result | first).name", "a"),
        (
            "[1, -2.5, 'a', true, none, {'k': [fetch.count]}]",
            [1, -2.5, "a", True, None, {"k": [3]}],
        ),
        ("'it\\'s \\u00e9'", "it's é"),
        ("-fetch.count", -3),
        ("not[0]", False),
        ("fetch.count == 3", True),
        ("fetch.count != 3", False),
        ("2 < fetch.count <= 3", True),
        ("3 < fetch.count < oops.never", False),
        ("'a' < 'b'", True),
        ("'k' in fetch.status", True),
        ("3 in [1, 2]", False),
        ("'count' in fetch", True),
        ("3 not in [1, 2]", True),
        ("input.flag and fetch.count", 3),
        ("not input.flag or fetch.count > 2", True),
        ("none or fetch.nothing or ''", ""),
        ("'many' if fetch.count > 2 else 'few'", "many"),
    ],
)
def test_an_expression_has_the_value_of_its_parts(source: str, expected: object) -> None:
    assert evaluated(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("fetch.absent | default('x')", "x"),
        ("absent.a.b | d(fetch.count)", 3),
        ("fetch.nothing.deeper | default(1)", 1),
        ("fetch.nothing | default(1)", None),
        ("[] | first | default(0)", 0),
        ("fetch.result | length", 2),
        ("fetch | count", 7),
        ("' A ' | trim | lower", "a"),
        ("'a' | upper", "A"),
        ("[1, 'b', none] | join('-')", "1-b-null"),
        ("[1, 2] | first", 1),
        ("[1, 2] | last", 2),
        ("{'b': 1, 'a': 2} | keys", ["b", "a"]),
        ("{'b': 1, 'a': 2} | values", [1, 2]),
        ("[3, 1.5, 2] | sort", [1.5, 2, 3]),
        ("[{'a': 1}, 'x', {'a': 1}] | unique", [{"a": 1}, "x"]),
        ("[1, 2.5] | sum", 3.5),
        ("['b', 'a'] | min", "a"),
        ("[1, 2] | max", 2),
        ("' -12 ' | int", -12),
        ("2.9 | int", 2),
        ("true | int", 1),
        ("'1.5e1' | float", 15.0),
        ("3 | float", 3.0),
        ("true | string", "true"),
        ("2.6 | round", 3),
        ("2.345 | round(1)", 2.3),
        ("{'a': [1, 'é']} | tojson", '{"a": [1, "é"]}'),
        ("-2 | abs", 2),
        ("'a-b' | replace('-', '+')", "a+b"),
        ("'a,b' | split(',')", ["a", "b"]),
        ("' a  b ' | split", ["a", "b"]),
    ],
)
def test_a_filter_returns_its_value(source: str, expected: object) -> None:
    assert evaluated(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("fetch.absent is defined", False),
        ("absent is not defined", True),
        ("fetch.nothing is defined", True),
        ("fetch.nothing is none", True),
        ("'a' is string", True),
        ("true is number", False),
        ("1.5 is number", True),
        ("{} is mapping", True),
        ("'a' is sequence", False),
        ("[] is sequence", True),
        ("0 is boolean", False),
    ],
)
def test_a_test_checks_the_type_of_a_value(source: str, expected: bool) -> None:
    assert evaluated(source) is expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ fetch.count }}", 3),
        ("{{fetch.result[1]}}", {"name": "b", "tags": []}),
        (" {{ fetch.count }}", " 3"),
        ("{{ fetch.count }}{{ fetch.nothing }}", "3null"),
        ("a\r\n{{ fetch.status }}\n", "a\r\nok\n"),
        ("{{ input.flag }} & {{ fetch.result[0] }}", 'true & {"name": "a", "tags": ["x", "y"]}'),
        ("{{ '{{' }} {{ '}}' }} }}", "{{ }} }}"),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("no template, } or {", "no template, } or {"),
    ],
)
def test_a_single_template_keeps_its_type_and_surrounding_text_makes_a_string(
    template: str, expected: object
) -> None:
    assert resolved(template) == expected


def test_only_parts_with_templates_are_copied() -> None:
    config: Any = {"static": {"deep": [1, 2]}, "{{ key }}": "v", "list": [[0], "{{ fetch.count }}"]}
    tree = compile_tree(config)

    value = tree.resolve(Values(SCOPE))

    assert value == {"static": {"deep": [1, 2]}, "{{ key }}": "v", "list": [[0], 3]}
    assert value["static"] is config["static"]
    assert value["list"][0] is config["list"][0]
    assert config["list"][1] == "{{ fetch.count }}"


def test_a_tree_without_templates_is_static_and_resolves_to_itself() -> None:
    config = {"a": ["b", {"c": 1}]}
    tree = compile_tree(config)

    assert tree.is_static
    assert tree.resolve(Values({})) is config
    assert not compile_tree(["{{ a }}"]).is_static


def test_text_from_a_value_is_never_rendered_again() -> None:
    scope = Values({"input": {"text": "{{ secrets.key }}"}})

    assert compile_tree("> {{ input.text }}").resolve(scope) == "> {{ secrets.key }}"


def test_references_contain_every_path_also_optional_ones() -> None:
    tree = compile_tree(
        {
            "a": "{{ fetch.result[0].x }} {{ nodes['x-y'].z }}",
            "b": ["{{ input.a | default(item) }}"],
        }
    )

    assert tree.references == {
        TemplateReference("fetch", ("result", 0, "x")),
        TemplateReference("x-y", ("z",), via_nodes=True),
        TemplateReference("input", ("a",)),
        TemplateReference("item"),
    }
    assert compile_expression("a.b and not c").references == {
        TemplateReference("a", ("b",)),
        TemplateReference("c"),
    }
    assert str(TemplateReference("x-y", ("z", 0), via_nodes=True)) == "nodes['x-y'].z[0]"


@pytest.mark.parametrize(
    "source", ["item or absent", "item if item else absent", "not item and absent"]
)
def test_a_root_that_is_not_reached_is_not_looked_up(source: str) -> None:
    scope = Values(SCOPE)

    compile_expression(source).evaluate(scope)

    assert "absent" not in scope.asked


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{{ fetch.resutl }}",
            (
                "config: {{ fetch.resutl }}: 'fetch' has no 'resutl'; it has: result, status, "
                "count, ratio, nothing, _hidden, items (did you mean 'result'?)"
            ),
        ),
        (
            "{{ fetch.result[5] }}",
            "config: {{ fetch.result[5] }}: 'fetch.result' is a list of length 2, it has no [5]",
        ),
        (
            "{{ fetch.result.name }}",
            (
                "config: {{ fetch.result.name }}: 'fetch.result' is a list of length 2, "
                "it has no 'name'; take an item first, as in [0]"
            ),
        ),
        (
            "{{ fetch.count.x }}",
            "config: {{ fetch.count.x }}: 'fetch.count' is a number, it has no 'x'",
        ),
        (
            "{{ fetch.nothing.x }}",
            (
                "config: {{ fetch.nothing.x }}: 'fetch.nothing' is null, it has no 'x'; "
                "add | default(…) if it may be missing"
            ),
        ),
        (
            "{{ imput }}",
            (
                "config: {{ imput }}: there is no 'imput'; there is: big, fat, fetch, input, "
                "item, long, x-y (did you mean 'input'?)"
            ),
        ),
    ],
)
def test_the_error_for_a_missing_path_lists_the_existing_names(template: str, message: str) -> None:
    with pytest.raises(MissingValueError) as caught:
        resolved(template)

    assert str(caught.value) == message


def test_an_error_names_its_path_in_the_tree_and_keeps_its_data() -> None:
    tree = compile_tree({"prompt": ["a", {"b c": "text {{ fetch.absent }}"}]})

    with pytest.raises(MissingValueError) as caught:
        tree.resolve(Values({"fetch": {}}))

    error = caught.value
    assert (error.where, error.template) == ("config.prompt[1]['b c']", "{{ fetch.absent }}")
    assert (error.path, error.key, error.names) == ("fetch", "absent", ())
    assert (error.code, error.retryable) == ("missing_value", False)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("1 < 'a'", "'<' compares two numbers or two strings, got a number and a string"),
        ("true < 2", "'<' compares two numbers or two strings, got a boolean and a number"),
        ("1 in 'a'", "got a number in a string"),
        ("-'a'", "'-' expects a number after it, got a string"),
        ("1 | upper", "upper expects a string, got a number"),
        ("[1, 'a'] | sort", "expects only numbers or only strings, got a list of: a number, a str"),
        ("1 | first", "first expects a list, got a number"),
        ("[] | keys", "keys expects an object, got a list"),
        ("'1' | abs", "abs expects a number, got '1'"),
        ("none | length", "length expects a string, a list or an object, got null"),
        ("'a' | replace('', 'b')", "replace expects a text to search for, got an empty string"),
        ("'x1' | float", "float expects a number such as 1.5, got 'x1'"),
        ("'x1' | int", "int expects a whole number of at most 19 digits, got 'x1'"),
        ("'9999999999999999999' | int", "int: a number beyond 64 bits"),
        ("'1e999' | float", "float: a number beyond 64 bits"),
        ("1.5 | round(99)", "round expects 0 to 15 digits"),
        ("'a' | split('')", "split expects a separator, got an empty string"),
        ("big | replace('x', 'xx')", "the text is longer than 1,048,576 bytes"),
        ("[big, big] | tojson", "the text is longer than 1,048,576 bytes"),
        ("['', '', ''] | join(big)", "the text is longer than 1,048,576 bytes"),
        ("big | replace('x', 'é')", "the text is longer than 1,048,576 bytes"),
        (f"[{'fat, ' * 17}] | unique", "unique takes at most 16,777,216 bytes of JSON"),
        ("long | sort", "a list of 100,001 items; a filter takes and makes at most 100,000"),
        (f"[{'big | upper, ' * 17}]", "built here take more than 16,777,216 bytes"),
    ],
)
def test_values_that_do_not_fit_are_an_error_of_evaluation(source: str, problem: str) -> None:
    with pytest.raises(TemplateEvaluationError) as caught:
        evaluated(source)

    assert problem in str(caught.value)


def test_a_rendered_string_is_bounded_and_so_is_the_total_of_a_tree() -> None:
    with pytest.raises(TemplateEvaluationError, match="longer than 1,048,576 bytes"):
        resolved("{{ big }}!")
    with pytest.raises(TemplateEvaluationError, match=r"config\[16\].*more than 16,777,216"):
        resolved(["{{ big }}{{ '' }}"] * 17)
    assert resolved(["{{ big }}"] * 17)[16] is SCOPE["big"]


def test_values_nested_too_deeply_are_an_error_of_evaluation() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(TemplateEvaluationError, match="nested too deeply"):
        compile_tree("text {{ deep }}").resolve(Values({"deep": deep}))


def test_a_tree_may_be_a_hundred_levels_deep_and_no_deeper() -> None:
    value: Any = "{{ item }}"
    for _ in range(100):
        value = [value]

    assert resolved(value) is not None
    with pytest.raises(TemplateSyntaxError, match="nested too deeply: at most 100 levels"):
        compile_tree([value])


def test_long_chains_that_are_not_deep_are_allowed() -> None:
    assert evaluated(" and ".join(["item"] * 400)) == 7
    assert compile_expression("a" + ".b" * 1000 + " == 1").references


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}])
def test_null_false_zero_and_empty_do_not_hold(value: object) -> None:
    assert is_true(value) is False


@pytest.mark.parametrize("value", [True, 1, -0.5, "false", [0], {"a": None}])
def test_every_other_value_holds(value: object) -> None:
    assert is_true(value) is True


def test_plain_paths_do_not_import_jinja() -> None:
    script = (
        "import sys; from runnel.core.templates import compile_tree, compile_expression\n"
        "compile_tree(['a', 'x {{ fetch.result[0].y }} {{ nodes[\"x-y\"].z }}'])\n"
        "compile_expression('input.flag')\n"
        "sys.exit('jinja2' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
