"""What the text of an environment variable may be; each parser raises ValueError: "expected …"."""

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
Parse: TypeAlias = Callable[[str], object]

PORT_MAX = 65_535
MILLISECONDS = 1_000
SECRET_CHARS_MIN = 4
_WHOLE_LISTS: Mapping[str, tuple[str, ...]] = {"all": ("*",), "none": ()}
# module:function, module:* (all that it defines), package.* (with all modules below).
_FUNCTIONS = re.compile(r"[\w.]+:[\w.]+|[\w.]+:\*|[\w.]+\.\*")
_HOST = re.compile(r"(?![\d.]+$)[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_-]+)*")
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


def names(fits: Callable[[str], bool], example: str) -> Callable[[str], tuple[str, ...]]:
    """`all` as ('*',), `none` as (), or names with commas between them."""

    def parse(text: str) -> tuple[str, ...]:
        if text in _WHOLE_LISTS:
            return _WHOLE_LISTS[text]
        found = tuple(each.strip() for each in text.split(","))
        if not all(map(fits, found)):
            raise ValueError(f"'all', 'none' or a list such as {example}")
        return found

    return parse


def is_function_pattern(text: str) -> bool:
    return _FUNCTIONS.fullmatch(text) is not None


def is_program(text: str) -> bool:
    return bool(text) and text.isprintable() and ("/" not in text or text.startswith("/"))


def is_address_pattern(text: str) -> bool:
    """An address, a network, or the name of a host."""
    try:
        ip_network(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def is_host(text: str) -> bool:
    """An address, or the name of a host."""
    return "/" not in text and is_address_pattern(text)


def is_origin(text: str) -> bool:
    """As browsers write it: no path, not even a slash."""
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and text.endswith(parts.netloc)


def hidden_text(text: str) -> str:
    """A secret that is shorter could not be hidden without damage to innocent words."""
    if len(text) < SECRET_CHARS_MIN:
        raise ValueError(f"at least {SECRET_CHARS_MIN} characters")
    return text


def word(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError("a text without blanks around it")
    return text


def bearer(text: str) -> str:
    """What a header can hold."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a token as 'runnel token create' prints it")
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
