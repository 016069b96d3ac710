"""Numbers, times and texts as a person reads them."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from runnel.core.json_types import Json

MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400
RESERVED_LABELS = "runnel."


def duration(seconds: float) -> str:
    """`0.2 s`, `12 s`, `3m 20s`, `2h 05m`, `4d 3h`: never more than two units."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:  # noqa: PLR2004  # rounds to 10.0, which has a digit too many
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S}m {whole % MINUTE_S:02}s"
    if whole < DAY_S:
        return f"{whole // HOUR_S}h {whole % HOUR_S // MINUTE_S:02}m"
    return f"{whole // DAY_S}d {whole % DAY_S // HOUR_S}h"


def local_time(at: float) -> str:
    """In the zone of the machine: people compare it with the clock on the wall."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]


def short(text: str, most: int) -> str:
    """One line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def pretty(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 node`, `5 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most:,} more"


def shown_labels(labels: Mapping[str, str]) -> str:
    """Those that the user gave: what Runnel notes for itself is of no interest."""
    return " ".join(
        f"{key}={value}" for key, value in labels.items() if not key.startswith(RESERVED_LABELS)
    )
