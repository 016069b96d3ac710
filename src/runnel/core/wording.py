"""The words that all problems share: how a value is shown, and which name was probably meant."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

from runnel.core.values import Json

ELLIPSIS = "…"
"""Marks where a text was cut. Secrets are masked by it: half of one may stand before it."""
SHOWN_CHARS_MAX = 60
SHOWN_NAMES_MAX = 10
# Comparing one name with 1,000 others takes about 5 ms.
COMPARED_NAMES_MAX = 1_000


def describe_value(value: Json) -> str:
    """A value as it reads after 'got': short ones as JSON would write them, others by kind."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return shorten(_format_number(value))
        case str():
            return quote_name(value)
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a Python {type(value).__name__}"


def quote_name(name: str) -> str:
    return f"'{shorten(escape_unprintable(name))}'"


def escape_unprintable(text: str) -> str:
    """On one line, and without anything that could move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, chars_max: int = SHOWN_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else text[: chars_max - len(ELLIPSIS)] + ELLIPSIS


def format_names(names: Sequence[str]) -> str:
    """`'a', 'b' and 3 more`."""
    shown_names = [quote_name(name) for name in names[:SHOWN_NAMES_MAX]]
    rest = len(names) - len(shown_names)
    return ", ".join(shown_names) + (f" and {rest:,} more" if rest else "")


def suggest_name(unknown_name: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing when no name is close."""
    close = find_closest_name(unknown_name, names)
    return "" if close is None else f" (did you mean {quote_name(close)}?)"


def suggest_or_list_names(unknown_name: str, names: Iterable[str]) -> str:
    """The name that was probably meant, or else those that there are."""
    known = list(names)
    return suggest_name(unknown_name, known) or f"; there are: {format_names(known)}"


def find_closest_name(unknown_name: str, names: Iterable[str]) -> str | None:
    lowered = {name.lower(): name for name in islice(names, COMPARED_NAMES_MAX)}
    found = get_close_matches(unknown_name[:SHOWN_CHARS_MAX].lower(), lowered, n=1)
    return lowered[found[0]] if found else None


def _format_number(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to write out more than a few thousand digits
        return "a number of thousands of digits"
