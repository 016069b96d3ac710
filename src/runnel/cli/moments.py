"""Durations and times as people type them: `90`, `1h30m`, `2026-12-01 09:00`."""

import re
from datetime import datetime, tzinfo

from runnel.core.checks.wording import quoted
from runnel.errors import InputError

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+|\d+(?:\.\d+)?")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


def parse_duration(text: str, option: str) -> float:
    """Seconds; raises InputError, which names the option."""
    if _DURATION.fullmatch(text.strip()) is None:
        raise InputError(
            f"{option}: expected seconds, or a duration such as 45s, 10m, 1h30m or 2d, "
            f"got {quoted(text)}"
        )
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in _PART.findall(text))


def parse_moment(text: str, option: str, zone: tzinfo) -> float:
    """Seconds since the epoch; what names no zone is in `zone`. Raises InputError."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{option}: expected a time such as 2026-12-01T09:00 or 2026-12-01T08:00:00Z, "
            f"got {quoted(text)}"
        ) from error
