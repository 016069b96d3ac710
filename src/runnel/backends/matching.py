"""Which executions are wanted, and a page of them, for stores that have to look at each."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from runnel.core.commands import CreateExecution
from runnel.core.effects import DeadLetter
from runnel.core.states import ExecutionState
from runnel.core.wording import printable
from runnel.errors import CommitTooLargeError, NotFoundError
from runnel.ports.archive import (
    LOOKED_MAX,
    NEWEST,
    ExecutionFilter,
    HeaderPage,
    LetterFilter,
    Place,
    StateCount,
    cursor_at,
    place_at,
)
from runnel.ports.store import Commit, CommitLimits, Header

ReadHeaders = Callable[[Place, int], Awaitable[Sequence[Header]]]
"""The newest behind a place, at most so many; fewer only when there are no more."""


def is_wanted(header: Header, wanted: ExecutionFilter) -> bool:
    """Whatever page it is on."""
    return (
        (not wanted.states or header.state in wanted.states)
        and wanted.workflow in (None, header.workflow)
        and wanted.rerun_of in (None, header.rerun_of)
        and (
            header.parent_id == wanted.parent
            if wanted.parent is not None
            else wanted.with_children or header.parent_id is None
        )
        and wanted.created_from <= header.created_at < wanted.created_before
        and all(header.labels.get(key) == value for key, value in wanted.labels.items())
        and (not wanted.text or _mentions(header, wanted.text.casefold()))
    )


def _mentions(header: Header, text: str) -> bool:
    said = (header.execution_id, header.workflow, header.error or "", *header.labels.values())
    return any(text in each.casefold() for each in said)


def is_searched(wanted: ExecutionFilter) -> bool:
    """Whether it asks for what no index of a database sorts by."""
    return bool(wanted.labels or wanted.text)


def states_of(wanted: ExecutionFilter) -> tuple[ExecutionState, ...]:
    return tuple(dict.fromkeys(wanted.states)) or tuple(ExecutionState)


def place_of(header: Header) -> Place:
    return header.created_at, header.execution_id


def start_of(wanted: ExecutionFilter) -> Place:
    """What is wanted is behind this place; raises InputError for an `after` that is none."""
    after = NEWEST if wanted.after is None else place_at(wanted.after)
    return min(after, (wanted.created_before, ""))


def page_of(headers: Sequence[Header], wanted: ExecutionFilter) -> HeaderPage:
    """Of all that are wanted behind its start; one more than its limit says that there are more."""
    if len(headers) <= wanted.limit:
        return HeaderPage(headers=headers)
    page = headers[: wanted.limit]
    return HeaderPage(headers=page, next=cursor_at(place_of(page[-1])))


async def look_through(
    read: ReadHeaders, wanted: ExecutionFilter, *, chunk: int, looked_max: int = LOOKED_MAX
) -> HeaderPage:
    """Reads `chunk` by `chunk` until the page is full, all is read, or enough was looked at."""
    place = start_of(wanted)
    found: list[Header] = []
    looked = 0
    while looked < looked_max:
        headers = await read(place, chunk)
        found += [header for header in headers if is_wanted(header, wanted)]
        is_over = len(headers) < chunk or headers[-1].created_at < wanted.created_from
        if is_over or len(found) > wanted.limit:
            return page_of(found, wanted)
        looked += len(headers)
        place = place_of(headers[-1])
    return HeaderPage(headers=found, next=cursor_at(place))


async def count_through(
    read: ReadHeaders, wanted: ExecutionFilter, *, chunk: int
) -> Mapping[ExecutionState, StateCount]:
    """Of the newest LOOKED_MAX: at least so many, if there are more."""
    everything = structs.replace(wanted, after=None, limit=LOOKED_MAX)
    page = await look_through(read, everything, chunk=chunk)
    counts = Counter(header.state for header in page)
    is_least = page.next is not None
    return {
        state: StateCount(number=counts[state], is_least=is_least) for state in states_of(wanted)
    }


# Which dead letters are wanted, for stores that have to look at each of them.

encode_letter = msgspec.json.Encoder().encode


def is_wanted_letter(letter: DeadLetter, wanted: LetterFilter) -> bool:
    """Whatever page it is on."""
    return (
        wanted.queue in (None, letter.queue)
        and wanted.workflow in (None, letter.workflow)
        and letter.token.execution_id.startswith(wanted.execution)
        and letter.rejected_at < wanted.before
    )


def page_of_letters(letters: Iterable[DeadLetter], wanted: LetterFilter) -> list[DeadLetter]:
    found = [
        (place_of_letter(letter), letter) for letter in letters if is_wanted_letter(letter, wanted)
    ]
    if wanted.after is not None:
        end = place_of_letter(wanted.after)
        found = [each for each in found if each[0] < end]
    found.sort(key=lambda each: each[0], reverse=True)
    return [letter for _, letter in found[: wanted.limit]]


def place_of_letter(letter: DeadLetter) -> tuple[float, bytes]:
    """Where it stands in a list, with the newest last."""
    return letter.rejected_at, encode_letter(letter)


# What a store says to whoever begins an execution of a workflow that is gone by then.


def no_longer_stored(command: CreateExecution) -> NotFoundError:
    return NotFoundError(
        f"version {command.version} of workflow",
        printable(command.workflow),
        hint="it was deleted in this very moment",
    )


# SQL in files: statements by name, or one after the other.

_STATEMENT = re.compile(r"^-- (\w+): [^\n]+\n(.+?);$", re.MULTILINE | re.DOTALL)


def named_statements(path: Path) -> dict[str, str]:
    """`-- name: purpose`, then one statement up to its `;` at the end of a line."""
    text = path.read_text(encoding="utf-8")
    return {match[1]: match[2] for match in _STATEMENT.finditer(text)}


def plain_statements(path: Path) -> list[str]:
    bare = re.sub(r"^--[^\n]*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [statement for statement in bare.split(";") if statement.strip()]


# The bounds of a commit: checked before anything is written.


def check_bounds(commit: Commit, limits: CommitLimits) -> None:
    if commit.writes > limits.writes:
        raise CommitTooLargeError("writes", commit.writes, limits.writes)
    if commit.size_bytes > limits.size_bytes:
        raise CommitTooLargeError("bytes", commit.size_bytes, limits.size_bytes)
