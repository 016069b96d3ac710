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
from runnel.ports.feed import Change, FeedPage, FeedPosition
from runnel.ports.store import Commit

ENTRIES_MAX = 10_000
# A full feed has 10 megabytes of ids, should all entries be full; the scripts in Lua say the same.
ENTRY_CHANGES_MAX = 50
# What a reader is given at once is made of so many at most.
ENTRIES_AT_ONCE = 100
# How an entry begins that tells of no change: whoever is before it has to look at everything.
BREAK = "!"

_SEPARATOR = "\n"  # in no id
_INSIDE = "-"
_LETTERS = {
    ExecutionState.PENDING: "p",
    ExecutionState.RUNNING: "r",
    ExecutionState.COMPLETED: "c",
    ExecutionState.FAILED: "f",
    ExecutionState.CANCELLED: "x",
}
_PENDING = _LETTERS[ExecutionState.PENDING]
_LIMIT = _INSIDE + LIMIT_PREFIX
_STATES: dict[str, ExecutionState | None] = {
    _INSIDE: None,
    **{letter: state for state, letter in _LETTERS.items()},
}
_POSITION = re.compile(r"([0-9]{1,18}(?:-[0-9]{1,18})?)\.([0-9]{1,9})\.([0-9a-f]{1,8})")


class Entry(NamedTuple):
    name: str
    text: str


class Place(NamedTuple):
    """A position, taken apart."""

    name: str
    told: int
    checksum: int


def entries_of(commit: Commit) -> list[str]:
    """What the commit itself changes; empty when that is nothing.

    On the way of every commit: 0.15 µs for each change.
    """
    letters = dict.fromkeys([each.aggregate_id for each in commit.histories], _INSIDE)
    for header in commit.headers:
        letters[header.execution_id] = _LETTERS[header.state]
    lines = [letter + id_ for id_, letter in letters.items()]
    entries = _joined(lines)
    if any(_LIMIT in entry for entry in entries):
        return _joined([line for line in lines if not line.startswith(_LIMIT)])
    return entries


def pending_entries(ids: Sequence[str]) -> list[str]:
    """Of executions that were submitted, or are to be made as children."""
    if len(ids) == 1:
        return [_PENDING + ids[0]]
    return _joined([_PENDING + each for each in ids])


def _joined(lines: list[str]) -> list[str]:
    if len(lines) <= ENTRY_CHANGES_MAX:
        return [_SEPARATOR.join(lines)] if lines else lines
    return [
        _SEPARATOR.join(lines[first : first + ENTRY_CHANGES_MAX])
        for first in range(0, len(lines), ENTRY_CHANGES_MAX)
    ]


def place_of(position: FeedPosition) -> Place | None:
    """None for a text that no feed has given out."""
    found = _POSITION.fullmatch(position)
    return None if found is None else Place(found[1], int(found[2]), int(found[3], 16))


def end_of(entry: Entry) -> FeedPosition:
    return _position(entry, len(_lines(entry.text)))


def page_of(
    after: FeedPosition, place: Place, entries: Sequence[Entry], limit: int
) -> FeedPage | None:
    """Of the entries from that of the position on; None when there is a gap behind it."""
    if not entries or not _is_known(place, entries[0]):
        return None
    changes: list[Change] = []
    told = place.told
    for entry in entries:
        if entry.text.startswith(BREAK) and entry.name != place.name:
            if not changes:
                return None
            break
        changes += _changes(entry, told, limit - len(changes))
        if len(changes) >= limit:
            break
        told = 0
    return FeedPage(changes=changes, position=changes[-1].position if changes else after)


def _is_known(place: Place, entry: Entry) -> bool:
    return (
        entry.name == place.name
        and _checksum(entry) == place.checksum
        and place.told <= len(_lines(entry.text))
    )


def _changes(entry: Entry, told: int, limit: int) -> list[Change]:
    lines = _lines(entry.text)[told : told + limit]
    checksum = f"{_checksum(entry):x}"
    return [
        Change(
            ExecutionId(line[1:]),
            _STATES[line[0]],
            FeedPosition(f"{entry.name}.{number}.{checksum}"),
        )
        for number, line in enumerate(lines, start=told + 1)
    ]


def _lines(text: str) -> list[str]:
    return [] if text.startswith(BREAK) else text.split(_SEPARATOR)


def _position(entry: Entry, told: int) -> FeedPosition:
    return FeedPosition(f"{entry.name}.{told}.{_checksum(entry):x}")


def _checksum(entry: Entry) -> int:
    return crc32(entry.text.encode())
