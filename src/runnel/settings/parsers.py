"""What the text of an environment variable may be; each parser raises ValueError: "expected …"."""

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
Parse: TypeAlias = Callable[[str], object]

PORT_MAX = 65_535
MILLISECONDS = 1_000
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    what = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"a whole number {what}")
        if most is not None and int(text) > most:
            raise ValueError(f"a whole number {what}")
        return int(text)

    return parse


def number(least: float, what: str = "a number") -> Callable[[str], float]:
    problem = f"{what} of at least {least:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(problem) from None
        if not least <= value < float("inf"):
            raise ValueError(problem)
        return value

    return parse


def seconds(least: float) -> Callable[[str], float]:
    return number(least, "a number of seconds")


def milliseconds(least: int) -> Callable[[str], float]:
    """Given in milliseconds, kept in seconds."""

    def parse(text: str) -> float:
        return whole(least)(text) / MILLISECONDS

    return parse


def truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError("'true' or 'false'")
    return _TRUTH[text.lower()]


def one_of(values: Mapping[str, T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        if text not in values:
            *others, last = (f"'{value}'" for value in values)
            raise ValueError(" or ".join([", ".join(others), last]))
        return values[text]

    return parse


def word(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError("a text without blanks around it")
    return text


def prefix(text: str) -> str:
    """In front of every key: braces would decide which server of a cluster has it."""
    if set("{}") & set(word(text)):
        raise ValueError("a text without braces")
    return text


def url(schemes: tuple[str, ...], example: str) -> Callable[[str], str]:
    """Checked for its shape only: whether anybody answers there is found out later."""

    def parse(text: str) -> str:
        problem = f"a URL such as {example}"
        try:
            parts = urlsplit(text)
            is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            raise ValueError(problem) from None
        is_socket = parts.scheme == "unix" and bool(parts.path)
        if parts.scheme not in schemes or not (is_whole or is_socket):
            raise ValueError(problem)
        return text

    return parse


def without_password(text: str) -> str:
    """A URL that may be shown, however it is written: without what stands before the host, and
    without its query, where a password may be too.

    >>> without_password("redis://:pa/ss@host:6379/0")
    'redis://***@host:6379/0'
    """
    before, at, rest = text.rpartition("@")
    place, mark, _ = rest.partition("?")
    scheme, colon, _ = before.partition("://")
    shown = f"{scheme}://" if colon else ""
    return (f"{shown}***@" if at else "") + place + (f"{mark}***" if mark else "")
