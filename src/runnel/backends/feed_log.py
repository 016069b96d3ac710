"""The entries of a feed, as every store keeps them, and the pages that readers get of them.

An entry is one text for one commit: a letter and an id for each execution that it changed. (Of a
large commit there are several, so that a bound for the entries is one for all that is kept.) A
position names an entry, how many of its changes were told, and a checksum of it. A store that
still has this very entry has told all before it, and still knows all behind it: no other sign is
needed of a store that was trimmed, wiped, set back or replaced by another one.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from runnel.core.commands import LIMIT_PREFIX
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.feed import ExecutionChange, FeedPage, FeedPosition
from runnel.ports.store import Commit

ENTRIES_MAX = 10_000
# A full feed has 10 megabytes of ids, should all entries be full; the scripts in Lua say the same.
ENTRY_CHANGES_MAX = 50
# What a reader is given at once is made of so many at most.
PAGE_ENTRIES_MAX = 100
# How an entry begins that tells of no change: whoever is before it has to look at everything.
GAP_MARKER = "!"

_SEPARATOR = "\n"  # in no id
_NO_STATE_CODE = "-"
_STATE_CODES = {
    ExecutionState.PENDING: "p",
    ExecutionState.RUNNING: "r",
    ExecutionState.COMPLETED: "c",
    ExecutionState.FAILED: "f",
    ExecutionState.CANCELLED: "x",
}
_PENDING_CODE = _STATE_CODES[ExecutionState.PENDING]
_LIMIT_LINE_PREFIX = _NO_STATE_CODE + LIMIT_PREFIX
_STATES_BY_CODE: dict[str, ExecutionState | None] = {
    _NO_STATE_CODE: None,
    **{letter: state for state, letter in _STATE_CODES.items()},
}
_POSITION_PATTERN = re.compile(r"([0-9]{1,18}(?:-[0-9]{1,18})?)\.([0-9]{1,9})\.([0-9a-f]{1,8})")


class FeedEntry(NamedTuple):
    id: str
    text: str


class FeedOffset(NamedTuple):
    """A position, taken apart."""

    entry_id: str
    changes_read: int
    checksum: int


def build_commit_entries(commit: Commit) -> list[str]:
    """What the commit itself changes; empty when that is nothing.

    On the way of every commit: 0.15 µs for each change.
    """
    letters = dict.fromkeys([record.aggregate_id for record in commit.histories], _NO_STATE_CODE)
    for header in commit.headers:
        letters[header.execution_id] = _STATE_CODES[header.state]
    lines = [letter + id_ for id_, letter in letters.items()]
    entries = _join_lines(lines)
    if any(_LIMIT_LINE_PREFIX in entry for entry in entries):
        return _join_lines([line for line in lines if not line.startswith(_LIMIT_LINE_PREFIX)])
    return entries


def build_pending_entries(ids: Sequence[str]) -> list[str]:
    """Of executions that were submitted, or are to be made as children."""
    if len(ids) == 1:
        return [_PENDING_CODE + ids[0]]
    return _join_lines([_PENDING_CODE + execution_id for execution_id in ids])


def _join_lines(lines: list[str]) -> list[str]:
    if len(lines) <= ENTRY_CHANGES_MAX:
        return [_SEPARATOR.join(lines)] if lines else lines
    return [
        _SEPARATOR.join(lines[first : first + ENTRY_CHANGES_MAX])
        for first in range(0, len(lines), ENTRY_CHANGES_MAX)
    ]


def parse_position(position: FeedPosition) -> FeedOffset | None:
    """None for a text that no feed has given out."""
    match = _POSITION_PATTERN.fullmatch(position)
    return None if match is None else FeedOffset(match[1], int(match[2]), int(match[3], 16))


def build_end_position(entry: FeedEntry) -> FeedPosition:
    return _build_position(entry, len(_split_lines(entry.text)))


def build_feed_page(
    after: FeedPosition, offset: FeedOffset, entries: Sequence[FeedEntry], limit: int
) -> FeedPage | None:
    """Of the entries from that of the position on; None when there is a gap behind it."""
    if not entries or not _is_same_entry(offset, entries[0]):
        return None
    changes: list[ExecutionChange] = []
    changes_read = offset.changes_read
    for entry in entries:
        if entry.text.startswith(GAP_MARKER) and entry.id != offset.entry_id:
            if not changes:
                return None
            break
        changes += _build_changes(entry, changes_read, limit - len(changes))
        if len(changes) >= limit:
            break
        changes_read = 0
    return FeedPage(changes=changes, position=changes[-1].position if changes else after)


def _is_same_entry(offset: FeedOffset, entry: FeedEntry) -> bool:
    return (
        entry.id == offset.entry_id
        and _compute_checksum(entry) == offset.checksum
        and offset.changes_read <= len(_split_lines(entry.text))
    )


def _build_changes(entry: FeedEntry, skip: int, limit: int) -> list[ExecutionChange]:
    lines = _split_lines(entry.text)[skip : skip + limit]
    checksum = f"{_compute_checksum(entry):x}"
    return [
        ExecutionChange(
            ExecutionId(line[1:]),
            _STATES_BY_CODE[line[0]],
            FeedPosition(f"{entry.id}.{number}.{checksum}"),
        )
        for number, line in enumerate(lines, start=skip + 1)
    ]


def _split_lines(text: str) -> list[str]:
    return [] if text.startswith(GAP_MARKER) else text.split(_SEPARATOR)


def _build_position(entry: FeedEntry, changes_read: int) -> FeedPosition:
    return FeedPosition(f"{entry.id}.{changes_read}.{_compute_checksum(entry):x}")


def _compute_checksum(entry: FeedEntry) -> int:
    return crc32(entry.text.encode())
