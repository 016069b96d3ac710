"""Texts that are not YAML or JSON, or contain values that JSON can't represent."""

from tests.unit.authoring.samples import case, of_a

TEXTS = [
    case("", "the document is empty; expected a workflow with 'name' and 'nodes'"),
    case("  # nothing\n", "the document is empty; expected a workflow with 'name' and 'nodes'"),
    case("\ufeff", "the document is empty; expected a workflow with 'name' and 'nodes'"),
    case(
        '{"name": "w", x}',
        "line 1, column 15: not JSON: expecting property name enclosed in double quotes",
    ),
    case(
        '{"name": "w", "name": "v", "nodes": []}',
        "the key 'name' is given twice in one object; keep one",
    ),
    case('{"name": NaN}', "JSON has no number NaN; use null, or a text"),
    case(
        '{"name": "w", "nodes": [], "timeout_seconds": 1e999}',
        "timeout_seconds: JSON has no number inf; quote it, or use null",
    ),
    case(
        '{"name": "\\ud800", "nodes": []}',
        "name: half of a surrogate pair is not a character; remove it",
    ),
    case('{"a": ' + "[" * 100_000, "the document is nested too deeply"),
    case('{"a": ' + "9" * 5_000 + "}", "a number has thousands of digits; put it in quotes"),
    case('{"a": 1} x', "line 1, column 10: not JSON: extra data"),
    case(
        of_a("config: {x: {{ b.c }}}"),
        "line 5, column 16: a template must be in quotes, as in '{{ fetch.result }}'",
    ),
    case(
        of_a("config:", "  x: {{ b.c }} and more"),
        "line 6, column 9: a template must be in quotes, as in '{{ fetch.result }}'",
    ),
    case(
        of_a("config: {on: 1}"), "line 5, column 12: the key on is true in YAML; put it in quotes"
    ),
    case(
        of_a("config: {1: 2}"), "line 5, column 12: the key 1 is a number in YAML; put it in quotes"
    ),
    case(of_a("config: {~: 2}"), "line 5, column 12: the key ~ is null in YAML; put it in quotes"),
    case(
        of_a("config: {x: 2024-01-01}"),
        "line 5, column 15: '2024-01-01' is a date in YAML, but JSON has no dates; put it in "
        "quotes",
    ),
    case(
        of_a("config: {x: .inf}"),
        "line 5, column 15: JSON has no number .inf; use null, or put it in quotes",
    ),
    case(
        of_a("config: {x: &a [*a]}"),
        "line 5, column 19: the alias *a needs a complete anchor &a before it",
    ),
    case(
        of_a("config: {x: *a}"),
        "line 5, column 15: the alias *a needs a complete anchor &a before it",
    ),
    case(
        of_a("config: {x: 1, x: 2}"),
        "line 5, column 18: the key 'x' is given twice in one object; keep one",
    ),
    case(
        of_a("config:", "\tx: 1"),
        "line 6, column 3: found a tab, but YAML allows only spaces; indent with spaces",
    ),
    case(
        of_a("config: %x"),
        "line 5, column 11: not YAML: found '%' where a value was expected; put a text that "
        "begins with % in quotes",
    ),
    case(
        of_a("config: a: b"),
        "line 5, column 12: not YAML: mapping values are not allowed in this context; put a text "
        "with ': ' in it in quotes",
    ),
    case(
        of_a("config: 'abc"),
        "line 6, column 1: not YAML: found unexpected end of stream; a quote before this is not "
        "closed",
    ),
    case(
        of_a("config: [a"),
        "line 6, column 1: not YAML: did not find expected ',' or ']'; a bracket before this is "
        "not closed",
    ),
    case(
        of_a("config: {a: \x00}"),
        "line 5, column 15: the character #x0000 is not allowed; remove it",
    ),
    case(
        of_a() + "---\nname: x\n",
        "line 5, column 1: a second document begins here; expected one workflow per file",
    ),
    case(
        of_a("config: !!python/name:os.system x"),
        "line 5, column 11: the tag !!python/name:os.system is not supported; remove it",
    ),
    case(of_a("config: !!set {a}"), "line 5, column 11: the tag !!set is not supported; remove it"),
    case(
        of_a("config: {a: !!binary aaaa}"),
        "line 5, column 15: the tag !!binary is not supported; remove it",
    ),
    case(
        of_a("config: {a: !mine b}"),
        "line 5, column 15: the tag !mine is not supported; remove it",
    ),
    case(of_a("config: {? [1] : 2}"), "line 5, column 14: a key must be a text, got a list"),
    case(
        of_a("config: {a: !!int x}"),
        "line 5, column 15: 'x' can't be read as !!int; put it in quotes",
    ),
    case(
        of_a("config: {<<: 1}"),
        "line 5, column 16: '<<': expected an alias of an object, got 1",
    ),
    case(
        of_a(f"config: {{a: {'9' * 5_000}}}"),
        "line 5, column 15: '99999999999999999999999999999999999999999999999999999999999…' can't "
        "be read as !!int; put it in quotes",
    ),
    case(
        of_a(f"config: {'[' * 300}"),
        "line 5, column 208: nested too deeply: at most 200 levels are allowed",
    ),
    case(
        of_a("config: {a: @x}"),
        "line 5, column 15: not YAML: found '@' where a value was expected; put a text that "
        "begins with @ in quotes",
    ),
]
