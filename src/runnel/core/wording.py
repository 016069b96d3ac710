"""The words that all problems share: how a value is shown, and which name was probably meant."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

from runnel.core.values import Json

SHOWN_CHARS = 60
SHOWN_NAMES = 10
# Comparing one name with 1,000 others takes about 5 ms.
COMPARED_NAMES = 1_000


def shown(value: Json) -> str:
    """A value as it reads after 'got': short ones as JSON would write them, others by kind."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return shorten(_digits(value))
        case str():
            return quoted(value)
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a Python {type(value).__name__}"


def quoted(name: str) -> str:
    return f"'{shorten(printable(name))}'"


def printable(text: str) -> str:
    """On one line, and without anything that could move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"


def listed(names: Sequence[str]) -> str:
    """`'a', 'b' and 3 more`."""
    shown_names = [quoted(name) for name in names[:SHOWN_NAMES]]
    rest = len(names) - len(shown_names)
    return ", ".join(shown_names) + (f" and {rest:,} more" if rest else "")


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing when no name is close."""
    close = closest(wanted, names)
    return "" if close is None else f" (did you mean {quoted(close)}?)"


def name_hint(wanted: str, names: Iterable[str]) -> str:
    """The name that was probably meant, or else those that there are."""
    known = list(names)
    return did_you_mean(wanted, known) or f"; there are: {listed(known)}"


def closest(wanted: str, names: Iterable[str]) -> str | None:
    lowered = {name.lower(): name for name in islice(names, COMPARED_NAMES)}
    found = get_close_matches(wanted[:SHOWN_CHARS].lower(), lowered, n=1)
    return lowered[found[0]] if found else None


def _digits(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to write out more than a few thousand digits
        return "a number of thousands of digits"
