"""The errors of templates, their size limits, and the messages for unsupported Jinja syntax."""

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice

from runnel.core.message_text import shorten
from runnel.core.values import Json
from runnel.errors import RunnelError

SHOWN_CHARS_MAX = 80
SHOWN_NAMES_MAX = 10
COMPARED_NAMES_MAX = 1000


class TemplateError(RunnelError):
    """The base of the errors of templates.

    `problem` is the message; callers add the template and its field.
    """

    code = "template"

    def __init__(
        self, problem: str, *, template: str | None = None, where: str | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.template = template
        self.where = where

    def add_location(self, *, template: str | None = None, where: str | None = None) -> None:
        """Sets the template and its field, unless they are set.

        The code that detects a problem knows neither template nor field.
        """
        self.template = self.template or template
        self.where = self.where or where

    def __str__(self) -> str:
        shown = self.template and shorten(self.template, SHOWN_CHARS_MAX)
        return ": ".join(part for part in (self.where, shown, self.problem) if part)


class TemplateSyntaxError(TemplateError):
    """A template or condition has invalid syntax.

    Validation reports this error before the workflow runs.
    """

    code = "template_syntax"


class TemplateEvaluationError(TemplateError):
    """The values that a template reads exist, but a type or size does not fit."""

    code = "template_evaluation"


class MissingValueError(TemplateError):
    """A path in a template leads to no value. `default(…)` and `is defined` catch only this error.

    If `key` is None, `path` itself is missing. If the value at `path` has no keys, `found`
    describes that value. `names` are the existing keys at `path`. `stands_for_null` is True for a
    value of a skipped node, which is null where null has a meaning (`evaluate_or_null`). With
    `voids_template` too, a whole template that reads the value is null.
    """

    code = "missing_value"

    def __init__(
        self,
        path: str,
        *,
        key: str | int | None = None,
        found: str | None = None,
        names: Iterable[str] = (),
    ) -> None:
        existing_names = [str(name) for name in islice(names, COMPARED_NAMES_MAX)]
        super().__init__(_format_missing_value(path, key, found, existing_names))
        self.path = path
        self.key = key
        self.found = found
        self.names = tuple(existing_names[:SHOWN_NAMES_MAX])
        self.stands_for_null = False
        self.voids_template = False


def make_no_output_error(
    root: str, reason: str, *, is_skipped: bool = False, voids_template: bool = False
) -> MissingValueError:
    """Returns the error of a node without an output. `reason` is, for example, "was skipped"."""
    error = MissingValueError(root)
    error.stands_for_null = is_skipped
    error.voids_template = is_skipped and voids_template
    error.problem = (
        f"{_quote(root)} {reason}, so it has no output; write {root} | default(…), or "
        "runnel.default(…) in Python"
    )
    return error


def _format_missing_value(
    path: str, key: str | int | None, found: str | None, names: list[str]
) -> str:
    if key is None:
        return f"there is no {_quote(path)}" + format_known_names(path, names, intro="there is")
    if found is None:
        head = f"{_quote(path)} has no {_quote(key)}"
        return head + (format_known_names(str(key), names) or "; it is empty")
    return f"{_quote(path)} is {found}, it has no {_quote(key)}" + _suggest_fix(found, key)


def _suggest_fix(found: str, key: str | int) -> str:
    if found == "null":
        return "; add | default(…) if it may be missing"
    if found.startswith("a list") and isinstance(key, str):
        return "; take an item first, as in [0]"
    return ""


def format_known_names(
    unknown_name: str, names: list[str], *, intro: str = "it has", shown_max: int = SHOWN_NAMES_MAX
) -> str:
    """Returns a list of names for a message, for example `; it has: a, b (did you mean 'a'?)`.

    Returns an empty text if there are no names.
    """
    if not names:
        return ""
    listed = ", ".join(shorten(name, SHOWN_CHARS_MAX) for name in names[:shown_max])
    more = ", …" if len(names) > shown_max else ""
    close = get_close_matches(shorten(unknown_name, SHOWN_CHARS_MAX), names, n=1)
    hint = f" (did you mean {_quote(close[0])}?)" if close else ""
    return f"; {intro}: {listed}{more}{hint}"


def _quote(name: str | int) -> str:
    return f"'{shorten(name, SHOWN_CHARS_MAX)}'" if isinstance(name, str) else f"[{name}]"


# -- the size limits of a template, of its parts and of its results ------------------------

SOURCE_BYTES_MAX = 64 * 1024
NODES_MAX = 500
DEPTH_MAX = 50
TREE_DEPTH_MAX = 100

# Jinja's parser uses about 15 stack frames per bracket. 25 brackets leave most of Python's 1,000
# frames free.
BRACKETS_MAX = 25
# In `not not x`, `- - x` and `a if b else c if d else e`, each operator uses one stack frame.
OPERATOR_CHAIN_MAX = 50

TEXT_BYTES_MAX = 1024 * 1024
ITEMS_MAX = 100_000
INTEGER_MAX = 2**63 - 1
DIGITS_MAX = 15

# The most bytes that the evaluation of a whole tree may build, so that many large texts are refused
# too.
BUILT_BYTES_MAX = 16 * 1024 * 1024
ITEM_BYTES = 8

CACHED_SOURCES_MAX = 1024


# -- messages for Jinja syntax that templates do not support --------------------------------

_ARITHMETIC_OPERATORS = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
}  # fmt: skip
_UNSUPPORTED_REASONS: Mapping[str, str] = {
    "Call": "calls are not part of templates; filters are written value | name",
    "Concat": "'~' is not part of templates; put the text around {{ … }}, or use | join",
    "Pos": "a '+' before a value means nothing; remove it",
    "Slice": "slices are not part of templates; take one item, as in [0] or [-1]",
    "Tuple": "'( , )' is not part of templates; write a list: [a, b]",
}


def explain_unsupported(construct: str) -> str:
    """Returns the message for a construct that is not supported.

    `construct` is the name of its Jinja class.
    """
    if construct in _ARITHMETIC_OPERATORS:
        return (
            f"arithmetic ('{_ARITHMETIC_OPERATORS[construct]}') is not part of templates; "
            "compute it in a node and refer to its result"
        )
    return _UNSUPPORTED_REASONS.get(construct, f"'{construct}' is not part of templates")


def check_literal(value: Json) -> Json:
    """Returns the value of a literal.

    Raises TemplateSyntaxError for values that JSON can't represent.
    """
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


def check_argument_count(name: str, count: int, *, count_min: int, count_max: int) -> None:
    if count_min <= count <= count_max:
        return
    expected = str(count_min) if count_min == count_max else f"{count_min} to {count_max}"
    raise TemplateSyntaxError(f"'{name}' takes {expected} arguments, got {count}")
