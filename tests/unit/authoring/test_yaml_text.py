"""YAML is read as JSON values, with anchors and merges, within limits."""

from typing import Any

import pytest
import yaml

from runnel.authoring.documents.yaml import parse_yaml
from runnel.errors import InvalidWorkflowError


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: [x, 'y', \"z\\n\", 1.5, true, null, ~, -3, 0x1f, 1_000]",
        "a: yes\nb: off\nc: 'yes'\nd: 10:30\ne: 1e3\nf: 1.0e+3",
        "a: |\n  two\n  lines\nb: >\n  one\n  line\n",
        "- &x {a: 1, b: [2]}\n- *x\n- c: *x\n",
        "base: &b {a: 1, b: 2}\nmore: {<<: *b, b: 3}\n",
        "x: &x {a: 1}\ny: &y {a: 2, b: 2}\nz: {<<: [*x, *y], c: 3}\n",
        "? key\n: value\n",
        "a: !!str 3\nb: !!int '3'\nc: !!float 3",
        "a:\nb: ''\n",
        "{}",
        "text",
        "äöü: '→ 🙂'",
    ],
)
def test_yaml_values_equal_those_of_pyyaml(text: str) -> None:
    assert parse_yaml(text, source="x") == yaml.safe_load(text)


def test_an_equals_sign_is_read_as_text() -> None:
    assert parse_yaml("op: =", source="x") == {"op": "="}


def refusal(text: str) -> str:
    with pytest.raises(InvalidWorkflowError) as caught:
        parse_yaml(text, source="x")
    (problem,) = caught.value.problems
    return problem


def test_aliases_that_expand_too_far_are_refused() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    bomb = "\n".join(["l0: &l0 lol", *levels])

    assert refusal(bomb).endswith(
        "the document is larger than 10 MB with its aliases expanded; use fewer aliases"
    )


def test_a_large_text_repeated_by_aliases_is_refused() -> None:
    bomb = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 200)}]"

    assert "larger than 10 MB" in refusal(bomb)


def test_a_few_aliases_of_a_small_value_are_accepted() -> None:
    value: Any = parse_yaml(f"a: &a {{r: 3}}\nb: [{', '.join(['*a'] * 10_000)}]", source="x")

    assert len(value["b"]) == 10_000


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_a_document_nested_too_deeply_is_refused(text: str) -> None:
    assert "nested too deeply" in refusal(text)


def test_the_parser_in_python_refuses_the_same_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.authoring.documents.yaml._Loader", yaml.SafeLoader)

    assert refusal("a: 1\na: 2") == (
        "line 2, column 1: the key 'a' is given twice in one object; keep one"
    )
    assert refusal("a: {{ b.c }}") == (
        "line 1, column 5: a template must be in quotes, as in '{{ fetch.result }}'"
    )
    assert refusal("a:\n\tb: 1").startswith(
        "line 2, column 1: found a tab, but YAML allows only spaces"
    )
