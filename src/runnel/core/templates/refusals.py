"""What the language leaves out of Jinja's, and what to write instead."""

import math
from collections.abc import Mapping

from runnel.core.json_types import Json
from runnel.core.templates.failures import TemplateSyntaxError
from runnel.core.templates.limits import INTEGER_MAX

_ARITHMETIC = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
}  # fmt: skip
_REASONS: Mapping[str, str] = {
    "Call": "calls are not part of templates; filters are written value | name",
    "Concat": "'~' is not part of templates; put the text around {{ … }}, or use | join",
    "Pos": "a '+' before a value means nothing; remove it",
    "Slice": "slices are not part of templates; take one item, as in [0] or [-1]",
    "Tuple": "'( , )' is not part of templates; write a list: [a, b]",
}


def reason_against(construct: str) -> str:
    """`construct` is the name of the class by which Jinja knows it."""
    if construct in _ARITHMETIC:
        return (
            f"arithmetic ('{_ARITHMETIC[construct]}') is not part of templates; "
            "compute it in a node and refer to its result"
        )
    return _REASONS.get(construct, f"'{construct}' is not part of templates")


def checked_literal(value: Json) -> Json:
    """The value itself; refuses what Jinja can read but JSON can't hold."""
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        raise TemplateSyntaxError("a whole number beyond 64 bits; pass it as a string")
    if isinstance(value, float) and not math.isfinite(value):
        raise TemplateSyntaxError("a number too large for a float; pass it as a string")
    if isinstance(value, str) and not value.isascii():
        _check_characters(value)
    return value


def _check_characters(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TemplateSyntaxError("half of a surrogate pair is not a character") from error


def check_count(name: str, found: int, *, least: int, most: int) -> None:
    if least <= found <= most:
        return
    wanted = str(least) if least == most else f"{least} to {most}"
    raise TemplateSyntaxError(f"'{name}' takes {wanted} arguments, got {found}")
