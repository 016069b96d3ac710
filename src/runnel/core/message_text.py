"""Text functions for error messages: describe values, shorten texts, suggest similar names."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

from runnel.core.values import Json

ELLIPSIS = "…"
"""Marks where a text was cut.

The masking of secrets treats the ellipsis specially, because half a secret may precede it.
"""
SHOWN_CHARS_MAX = 60
SHOWN_NAMES_MAX = 10
# A comparison of one name with 1,000 others takes about 5 ms.
COMPARED_NAMES_MAX = 1_000


def describe_value(value: Json) -> str:
    """Returns a short description of a value for error messages.

    Lists and objects are named by their kind.
    """
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
    """Returns the text with line breaks and terminal control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, chars_max: int = SHOWN_CHARS_MAX) -> str:
    return text if len(text) <= chars_max else text[: chars_max - len(ELLIPSIS)] + ELLIPSIS


def format_names(names: Sequence[str]) -> str:
    """Returns the first names, for example `'a', 'b' and 3 more`."""
    shown_names = [quote_name(name) for name in names[:SHOWN_NAMES_MAX]]
    hidden_count = len(names) - len(shown_names)
    return ", ".join(shown_names) + (f" and {hidden_count:,} more" if hidden_count else "")


def suggest_name(unknown_name: str, names: Iterable[str]) -> str:
    """Returns a suggestion such as ` (did you mean 'x'?)`, or an empty text if no name is
    similar.
    """
    close = find_closest_name(unknown_name, names)
    return "" if close is None else f" (did you mean {quote_name(close)}?)"


def suggest_or_list_names(unknown_name: str, names: Iterable[str]) -> str:
    """Returns a suggestion of a similar name, or a list of the existing names if none is
    similar.
    """
    name_list = list(names)
    return suggest_name(unknown_name, name_list) or f"; there are: {format_names(name_list)}"


def find_closest_name(unknown_name: str, names: Iterable[str]) -> str | None:
    lowered = {name.lower(): name for name in islice(names, COMPARED_NAMES_MAX)}
    closest = get_close_matches(unknown_name[:SHOWN_CHARS_MAX].lower(), lowered, n=1)
    return lowered[closest[0]] if closest else None


def _format_number(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python does not format more than a few thousand digits
        return "a number of thousands of digits"
