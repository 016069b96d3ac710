"""What a JSON value is, in the words of the messages, and the `is …` tests on it."""

from collections.abc import Callable, Mapping

from runnel.core.json_types import Json


def kind(value: Json) -> str:
    """As it reads after 'is' or 'got'."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def is_number(value: Json) -> bool:
    """True and False are no numbers here, as in JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


TESTS: Mapping[str, Callable[[Json], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": is_number,
    "sequence": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
}
