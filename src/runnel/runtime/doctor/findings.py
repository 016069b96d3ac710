"""One thing that was looked at."""

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`found` is how it is, `remedy` what to do about it: empty when it is fine."""

    verdict: Verdict
    about: str
    found: str
    remedy: str = ""


def ok(about: str, found: str) -> Finding:
    return Finding(verdict=Verdict.OK, about=about, found=found)


def warn(about: str, found: str, remedy: str) -> Finding:
    return Finding(verdict=Verdict.WARN, about=about, found=found, remedy=remedy)


def bad(about: str, found: str, remedy: str) -> Finding:
    return Finding(verdict=Verdict.BAD, about=about, found=found, remedy=remedy)
