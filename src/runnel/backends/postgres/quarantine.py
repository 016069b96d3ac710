"""What PostgreSQL would not take of a commit: kept as it is, so that the rest can go on.

From its first refused entry on, all of an aggregate goes here: its history is that of the audit
log, and then this, in the order in which it happened.
"""

import hashlib
from collections.abc import AsyncIterator, Collection, Container, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from runnel.backends.postgres.database import DRIVER_ERRORS, SQL, Connection, is_refusal
from runnel.backends.postgres.projection import (
    Projection,
    clear_staged,
    escaped,
    header_row,
    storable,
    write_applied,
    write_batch,
    write_headers,
)
from runnel.ports.journal import JournalEntry, SetAside
from runnel.ports.store import Header

REASON_CHARS_MAX = 500
FOLLOWS = "an earlier commit of it was refused"

_encode = msgspec.json.encode
decode_header = msgspec.json.Decoder(Header).decode


def digest_of(aggregate_id: str) -> str:
    return hashlib.blake2b(aggregate_id.encode(), digest_size=16).hexdigest()


class Writer:
    """For one partition, inside a transaction; `aside` are digests of what is set aside already."""

    def __init__(self, connection: Connection, partition: int, *, aside: Collection[str]) -> None:
        self.connection = connection
        self.has_aside = bool(aside)
        self._partition = partition
        self._aside = aside

    async def write(self, commits: Sequence[JournalEntry]) -> None:
        """All of it; what is of an aggregate that is set aside goes there."""
        known = {
            id_: FOLLOWS
            for commit in commits
            for id_ in _ids_of(commit)
            if digest_of(id_) in self._aside
        }
        batch = Projection(self._partition)
        for commit in commits:
            batch.add(commit, of=_AllBut(known))
        await write_batch(self.connection, batch)
        await clear_staged(self.connection)
        for commit in commits:
            await self._set_aside(commit, known)

    async def write_piecemeal(self, commit: JournalEntry) -> Sequence[SetAside]:
        """One aggregate after the other; returns those that were refused."""
        refused: list[SetAside] = []
        reasons: dict[str, str] = {}
        for id_ in _ids_of(commit):
            if digest_of(id_) in self._aside:
                reasons[id_] = FOLLOWS
                continue
            async with self._tried() as problems:
                part = Projection(self._partition)
                part.add(commit, of={id_})
                await write_batch(self.connection, part)
            if problems:
                reasons[id_] = problems[0]
                refused.append(SetAside(id_, problems[0]))
        await self._set_aside(commit, reasons)
        return refused

    async def _set_aside(self, commit: JournalEntry, reasons: Mapping[str, str]) -> None:
        if not reasons:
            return
        rows = [
            (self._partition, commit.sequence, *row, storable(reasons[id_])[:REASON_CHARS_MAX])
            for id_, row in _rows_of(commit)
            if id_ in reasons
        ]
        await self.connection.executemany(SQL["add_set_aside"], rows)
        closed = [each for each in commit.closed if each in reasons]
        if closed:  # also what was archived of it before
            await self.connection.execute(SQL["close_limits"], [escaped(each) for each in closed])
            await self.connection.execute(SQL["close_set_aside"], [*map(digest_of, closed)])
        await self._tell_what_can_be_told(commit, reasons)

    async def _tell_what_can_be_told(self, commit: JournalEntry, ids: Container[str]) -> None:
        """Lists show its state, and its commands have had their effect, if that much is taken."""
        for header in commit.headers:
            if header.execution_id in ids:
                async with self._tried():
                    await write_headers(self.connection, [header_row(self._partition, header)])
        async with self._tried():
            part = Projection(self._partition)
            part.add(commit, of=ids)
            await write_applied(self.connection, part)

    @asynccontextmanager
    async def _tried(self) -> AsyncIterator[list[str]]:
        """Undone when it is refused: then the list has the reason."""
        problems: list[str] = []
        try:
            async with self.connection.transaction():
                yield problems
                await clear_staged(self.connection)
        except Exception as error:
            if isinstance(error, DRIVER_ERRORS) and not is_refusal(error):
                raise
            problems.append(f"{type(error).__name__}: {error}")


class _AllBut(Container[str]):
    def __init__(self, left_out: Container[str]) -> None:
        self._left_out = left_out

    def __contains__(self, item: object) -> bool:
        return item not in self._left_out


def _ids_of(commit: JournalEntry) -> Sequence[str]:
    return list(dict.fromkeys([*(id_ for id_, _ in _rows_of(commit)), *commit.closed]))


def _rows_of(commit: JournalEntry) -> Iterator[tuple[str, tuple[object, ...]]]:
    """By aggregate: kind, ordinal, digest, id and body."""
    for ordinal, history in enumerate(commit.histories):
        yield _row(history.aggregate_id, "history", ordinal, history.entry)
    for ordinal, header in enumerate(commit.headers):
        yield _row(header.execution_id, "header", ordinal, _encode(header))
    for ordinal, letter in enumerate(commit.dead_letters):
        yield _row(letter.token.execution_id, "letter", ordinal, _encode(letter))


def _row(id_: str, kind: str, ordinal: int, body: bytes) -> tuple[str, tuple[object, ...]]:
    return id_, (kind, ordinal, digest_of(id_), id_.encode(), body)
