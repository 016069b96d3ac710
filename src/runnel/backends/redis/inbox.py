"""The inbox of a partition: a stream whose reader keeps its own place."""

from collections.abc import Sequence
from typing import Any

from runnel.backends.redis.lines import Lines
from runnel.core.codec import decode_message
from runnel.core.commands import TASK_ENDINGS
from runnel.core.ids import Token
from runnel.errors import UnreadableFormatError
from runnel.ports.store import InboxEntry, Position

PAGE = 1_000


def entries_of(stream: Sequence[Any]) -> list[InboxEntry]:
    return [_entry(position, fields) for position, fields in stream]


def is_behind(position: Position, other: Position) -> bool:
    return _order(position) > _order(other)


async def unread_reports(lines: Lines, key: str) -> set[Token]:
    """Tokens of the endings that no commit has consumed: what is consumed is trimmed."""
    found: set[Token] = set()
    start = "-"
    while page := await lines.call("XRANGE", key, start, "+", "COUNT", PAGE):
        entries = entries_of(page)
        commands = [entry.command for entry in entries]
        found |= {command.token for command in commands if isinstance(command, TASK_ENDINGS)}
        start = f"({entries[-1].position}"
    return found


async def unread_s(lines: Lines, key: str) -> float:
    """Since the first entry that no commit has consumed; 0 without any."""
    first = await lines.call("XRANGE", key, "-", "+", "COUNT", 1)
    if not first:
        return 0.0
    seconds, microseconds = await lines.call("TIME")
    arrived_ms = int(first[0][0].partition(b"-")[0])
    return max(0.0, int(seconds) + int(microseconds) / 1e6 - arrived_ms / 1e3)


def _entry(position: bytes, fields: Sequence[bytes]) -> InboxEntry:
    """One that can't be read keeps its place."""
    place, body = Position(position.decode()), fields[1]
    try:
        return InboxEntry(position=place, command=decode_message(body))
    except UnreadableFormatError as error:
        return InboxEntry(position=place, command=None, body=body, problem=str(error))


def _order(position: Position) -> tuple[int, int]:
    milliseconds, _, number = position.partition("-")
    return int(milliseconds), int(number)
