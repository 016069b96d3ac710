"""Syntax that is not part of the template language, and the message for it."""

from typing import Any

import pytest

from runnel.core.templates.errors import TemplateSyntaxError
from runnel.core.templates.template import compile_expression, compile_tree


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("a + b", "arithmetic ('+') is not part of templates; compute it in a node and refer"),
        ("a ** 2", "arithmetic ('**')"),
        ("a ~ b", "'~' is not part of templates; put the text around {{ … }}"),
        ("a.b()", "calls are not part of templates; filters are written value | name"),
        ("a[1:2]", "slices are not part of templates; take one item"),
        ("a[b]", "an index can't be computed; write ['name'], [0] or [-1]"),
        ("a[true]", "an index can't be computed"),
        ("(a, b)", "write a list: [a, b]"),
        ("+a", "remove it"),
        ("{1: 2}", "a key of an object is a string in quotes"),
        ("a if b", "'if' needs an 'else'"),
        ("a | frist", "there is no filter 'frist'; there are: abs, count,"),
        ("a | frist", "(did you mean 'first'?)"),
        ("a | join(1, 2)", "'join' takes 0 to 1 arguments, got 2"),
        ("a | default", "'default' takes 1 arguments, got 0"),
        ("a | join(d=',')", "'join' takes plain values only: no name=, * or **"),
        ("a is odd", "there is no test 'is odd'; there are: boolean, defined, mapping"),
        ("nodes", "'nodes' must be followed by the id of a node: nodes['my-node']"),
        ("nodes | length", "'nodes' must be followed"),
        ("nodes", "'nodes' must be followed"),
        ("nodes['item']", "no node can be named 'item', the name is reserved"),
        ("and", "'and' is an operator; a node of that name is nodes['and']"),
        ("a b", "unexpected 'b' after the expression; expected an expression such as"),
        ("a }} b", "'}}' without '{{' before it"),
        ("{{ a }} and {{ b }}", "expected one expression, with or without one {{ }}"),
        ("{% if a %}", "statements ('{%') are not part of templates"),
        ("", "the expression is empty; expected one"),
        ("(a", "'(' is never closed"),
        ("a]", "']' closes no open bracket"),
        ("'a", "a string that begins with ' is never closed"),
        (r"'\d'", r"'\d' is not an escape"),
        (r"'\ud800'", "half of a surrogate pair"),
        ("9223372036854775808", "a whole number beyond 64 bits"),
        ("9" * 5000, "a number that can't be read"),
        ("1e999", "a number too large for a float"),
        ("(" * 10_000 + ")" * 10_000, "nested too deeply"),
        ("[" * 10_000, "nested too deeply"),
        ("not " * 10_000 + "a", "nested too deeply"),
        ("-" * 10_000 + "1", "nested too deeply"),
        ("a if b else " * 1000 + "c", "nested too deeply"),
        ("a | first" + " | first" * 60, "too large: at most 500 parts, 50 levels"),
        ("[" + "1, " * 500 + "]", "too large: at most 500 parts, 50 levels"),
        ("a" * 70_000, "longer than 65,536 bytes"),
        ("'" + "a" * 70_000 + "'", "longer than 65,536 bytes"),
    ],
)
def test_unsupported_syntax_is_refused(source: str, problem: str) -> None:
    with pytest.raises(TemplateSyntaxError) as caught:
        compile_expression(source)

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"prompt": ["", "", "x {{ a + 1 }} y"]},
            (
                "config.prompt[2]: {{ a + 1 }}: arithmetic ('+') is not part of templates; "
                "compute it in a node and refer to its result"
            ),
        ),
        (
            "{{ .Names }} of docker",
            (
                "config: {{ .Names }}: unexpected '.'; expected an expression such as "
                "fetch.result[0].name"
            ),
        ),
        (
            ["{{ a"],
            (
                "config[0]: {{ a: '{{' is never closed by '}}'; for these two characters as text "
                "write {{ '{{' }}"
            ),
        ),
        (
            "a {# b #}",
            (
                "config: a {# b #}: comments ('{#') are not part of templates, only {{ … }} is; "
                "for these two characters as text write {{ '{#' }}"
            ),
        ),
        (
            "{{- a }}",
            (
                "config: {{- a }}: '{{-' (white space control) is not part of templates; "
                "remove the sign, or put a space before it if it belongs to a number"
            ),
        ),
        (
            "{{ a -}}",
            (
                "config: {{ a -}}: '-}}' (white space control) is not part of templates; "
                "remove the sign, or put a space before it if it belongs to a number"
            ),
        ),
    ],
)
def test_a_refused_template_says_where_it_is_and_what_to_write(value: Any, message: str) -> None:
    with pytest.raises(TemplateSyntaxError) as caught:
        compile_tree(value)

    assert str(caught.value) == message
