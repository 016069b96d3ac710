"""Finds the expressions in a text and parses them.

Parses plain paths itself, and all other expressions with Jinja.
"""

import re
from functools import lru_cache

import msgspec

from runnel.core.templates.errors import (
    BRACKETS_MAX,
    CACHED_SOURCES_MAX,
    OPERATOR_CHAIN_MAX,
    SOURCE_BYTES_MAX,
    TemplateSyntaxError,
)
from runnel.core.templates.filters import count_utf8_bytes
from runnel.core.templates.nodes import (
    ExpressionNode,
    PathKey,
    PathLookup,
    TemplateReference,
    make_reference,
)

# -- scanning: literal text, and expressions between `{{` and `}}` -------------------------
# Brackets are counted before Jinja parses a source, because Jinja's parser is recursive. A source
# that passes the check can't exhaust the stack.

OPENING_PATTERN = re.compile(r"\{[{%#]")
_CLOSING_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"""
      (?P<string> '[^'\\]*(?:\\.[^'\\]*)*' | "[^"\\]*(?:\\.[^"\\]*)*" )
    | (?P<quote> ['"] )
    | (?P<open> [(\[{] )
    | (?P<close> [)\]}] )
    | (?P<prefix> \bnot\b | [-+] )
    | (?P<otherwise> \belse\b )
    """,
    re.VERBOSE | re.DOTALL,
)
# Escapes other than these are refused. Python warns about them, and a caller may have turned
# warnings into exceptions.
_ESCAPE = re.compile(
    r"""\\(?:['"\\abfnrtv] | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | (?P<unknown>.))""",
    re.VERBOSE | re.DOTALL,
)


class SubstitutionSource(msgspec.Struct, frozen=True):
    """The source of an expression between `{{` and `}}`, without surrounding white space."""

    source: str


def split_template(text: str) -> list[str | SubstitutionSource]:
    """Splits a text into literal strings and SubstitutionSources, in order. Omits empty strings."""
    check_source_size(text)
    pieces: list[str | SubstitutionSource] = []
    start = 0
    while opening := OPENING_PATTERN.search(text, start):
        _check_opening(text, opening.start())
        end = _find_substitution_end(text, opening.end())
        pieces += [
            text[start : opening.start()],
            SubstitutionSource(text[opening.end() : end].strip()),
        ]
        start = end + len("}}")
    pieces.append(text[start:])
    return [piece for piece in pieces if piece != ""]


def check_source_size(source: str) -> None:
    if len(source) > SOURCE_BYTES_MAX or count_utf8_bytes(source) > SOURCE_BYTES_MAX:
        raise TemplateSyntaxError(
            f"the template is longer than {SOURCE_BYTES_MAX:,} bytes; pass long text as input"
        )


def check_nesting(source: str) -> None:
    """Raises TemplateSyntaxError if brackets do not match, or if the source is nested too
    deeply.
    """
    if _find_closing(source, 0) is not None:
        raise TemplateSyntaxError("'}}' without '{{' before it")


def _check_opening(text: str, start: int) -> None:
    opening = text[start : start + 2]
    if opening != "{{":
        syntax = "statements" if opening == "{%" else "comments"
        raise TemplateSyntaxError(
            f"{syntax} ('{opening}') are not part of templates, only {{{{ … }}}} is; "
            f"for these two characters as text write {{{{ '{opening}' }}}}"
        )
    if text[start + 2 : start + 3] in {"-", "+"}:
        raise _make_trimming_error("{{" + text[start + 2])


def _find_substitution_end(text: str, start: int) -> int:
    end = _find_closing(text, start)
    if end is None:
        raise TemplateSyntaxError(
            "'{{' is never closed by '}}'; for these two characters as text write {{ '{{' }}"
        )
    if text[end - 1] == "-":
        raise _make_trimming_error("-}}")
    return end


def _make_trimming_error(sign: str) -> TemplateSyntaxError:
    return TemplateSyntaxError(
        f"'{sign}' (white space control) is not part of templates; remove the sign, "
        "or put a space before it if it belongs to a number"
    )


def _find_closing(text: str, start: int) -> int | None:
    """Returns the index of the first `}}` outside brackets and strings; None if there is none."""
    brackets: list[str] = []
    chain = alternatives = 0
    chain_end = start
    while token := _TOKEN.search(text, start):
        start = token.end()
        match token.lastgroup:
            case "string":
                _check_escapes(token[0])
            case "quote":
                raise TemplateSyntaxError(f"a string that begins with {token[0]} is never closed")
            case "open":
                brackets.append(token[0])
            case "close":
                if not brackets and text.startswith("}}", token.start()):
                    return token.start()
                if not brackets or _CLOSING_BRACKETS[brackets.pop()] != token[0]:
                    raise TemplateSyntaxError(f"'{token[0]}' closes no open bracket")
            case "prefix":
                is_next = not text[chain_end : token.start()].strip()
                chain = chain + 1 if is_next else 1
                chain_end = token.end()
            case _:
                alternatives += 1
        if len(brackets) > BRACKETS_MAX or max(chain, alternatives) > OPERATOR_CHAIN_MAX:
            raise make_too_deep_error()
    if brackets:
        raise TemplateSyntaxError(f"'{brackets[-1]}' is never closed")
    return None


def make_too_deep_error() -> TemplateSyntaxError:
    return TemplateSyntaxError(
        f"nested too deeply: at most {BRACKETS_MAX} brackets inside each other, "
        f"{OPERATOR_CHAIN_MAX} of 'not', '-' or 'else' in a row"
    )


def _check_escapes(literal: str) -> None:
    for escape in _ESCAPE.finditer(literal):
        if escape["unknown"]:
            raise TemplateSyntaxError(
                f"'{escape[0]}' is not an escape; write '\\\\' for a backslash "
                "(known: \\n \\r \\t \\b \\f \\\\ \\' \\\" \\xHH \\uHHHH)"
            )


# Words that can't begin a path. For example, `not[0]` is not a path but negates a list.
NON_ROOT_WORDS = frozenset({"not", "true", "false", "none", "True", "False", "None"})

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_INDEX = r"0|[1-9][0-9]{0,8}"
_QUOTED = r"'[ !#-&(-\[\]-~]*'|\"[ !#-&(-\[\]-~]*\""
_STEP = re.compile(rf"\.({_NAME})|\.({_INDEX})|\[(-?(?:{_INDEX}))\]|\[({_QUOTED})\]")
_PATH = re.compile(rf"({_NAME})((?:{_STEP.pattern})*)")


class ParsedExpression(msgspec.Struct, frozen=True):
    """A parsed expression and the references in it."""

    node: ExpressionNode
    references: frozenset[TemplateReference]


@lru_cache(maxsize=CACHED_SOURCES_MAX)
def parse_expression(source: str) -> ParsedExpression:
    """Returns the parsed expression.

    Raises TemplateSyntaxError if the source is not exactly one expression of the language.
    """
    check_source_size(source)
    plain = parse_path(source)
    if plain is not None:
        return plain
    if not source.strip():
        raise TemplateSyntaxError("the expression is empty; expected one such as fetch.result")
    check_nesting(source)
    # Jinja is imported on demand, because its import takes about 60 ms, more than the rest of a
    # cold start.
    from runnel.core.templates.jinja_syntax import parse_with_jinja

    node, references = parse_with_jinja(source)
    return ParsedExpression(node=node, references=references)


def parse_path(source: str) -> ParsedExpression | None:
    """Parses a plain path such as `fetch.result[0].name`, the form of most templates.

    Returns None if the source is not a plain path.
    """
    match = _PATH.fullmatch(source)
    if match is None or match[1] in NON_ROOT_WORDS:
        return None
    reference = make_reference(match[1], tuple(map(_parse_step, _STEP.finditer(match[2]))))
    return ParsedExpression(node=PathLookup(reference), references=frozenset({reference}))


def _parse_step(step: re.Match[str]) -> PathKey:
    name, index, bracketed_index, quoted = step.groups()
    if name is not None:
        return str(name)
    return str(quoted[1:-1]) if quoted is not None else int(index or bracketed_index)
