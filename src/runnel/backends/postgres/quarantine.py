"""Quarantines entries that PostgreSQL refuses, so that the other entries of a commit are archived.

After PostgreSQL refuses one entry of an aggregate, all later entries of the aggregate are
quarantined. The history of the aggregate is the audit log followed by the quarantined entries, in
order.
"""

import hashlib
from collections.abc import AsyncIterator, Collection, Container, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from runnel.backends.postgres.database import DRIVER_ERRORS, SQL, Connection, is_refusal
from runnel.backends.postgres.projection import (
    Projection,
    build_header_row,
    clear_staged,
    escape_nul,
    replace_nul,
    write_applied,
    write_batch,
    write_headers,
)
from runnel.ports.journal import JournalEntry, QuarantinedAggregate

REASON_CHARS_MAX = 500
EARLIER_REFUSED_REASON = "an earlier commit of it was refused"

_encode = msgspec.json.encode


def compute_digest(aggregate_id: str) -> str:
    return hashlib.blake2b(aggregate_id.encode(), digest_size=16).hexdigest()


class ArchiveWriter:
    """Writes commits of one partition inside a transaction.

    `quarantined` holds the digests of aggregates that are already in quarantine.
    """

    def __init__(
        self, connection: Connection, partition: int, *, quarantined: Collection[str]
    ) -> None:
        self.connection = connection
        self.has_quarantined = bool(quarantined)
        self._partition = partition
        self._quarantined = quarantined

    async def write(self, commits: Sequence[JournalEntry]) -> None:
        """Writes the commits to the archive; writes entries of a quarantined aggregate to the
        quarantine.
        """
        reasons = {
            id_: EARLIER_REFUSED_REASON
            for commit in commits
            for id_ in _list_ids(commit)
            if compute_digest(id_) in self._quarantined
        }
        batch = Projection(self._partition)
        for commit in commits:
            batch.add(commit, aggregate_ids=_AllExcept(reasons))
        await write_batch(self.connection, batch)
        await clear_staged(self.connection)
        for commit in commits:
            await self._quarantine(commit, reasons)

    async def write_piecemeal(self, commit: JournalEntry) -> Sequence[QuarantinedAggregate]:
        """Writes a commit one aggregate at a time; quarantines and returns the refused
        aggregates.
        """
        refused: list[QuarantinedAggregate] = []
        reasons: dict[str, str] = {}
        for id_ in _list_ids(commit):
            if compute_digest(id_) in self._quarantined:
                reasons[id_] = EARLIER_REFUSED_REASON
                continue
            async with self._savepoint() as problems:
                part = Projection(self._partition)
                part.add(commit, aggregate_ids={id_})
                await write_batch(self.connection, part)
            if problems:
                reasons[id_] = problems[0]
                refused.append(QuarantinedAggregate(id_, problems[0]))
        await self._quarantine(commit, reasons)
        return refused

    async def _quarantine(self, commit: JournalEntry, reasons: Mapping[str, str]) -> None:
        if not reasons:
            return
        rows = [
            (self._partition, commit.sequence, *row, replace_nul(reasons[id_])[:REASON_CHARS_MAX])
            for id_, row in _iterate_rows(commit)
            if id_ in reasons
        ]
        await self.connection.executemany(SQL["add_set_aside"], rows)
        closed = [aggregate_id for aggregate_id in commit.closed if aggregate_id in reasons]
        if closed:  # the statements also delete entries that were archived before the quarantine
            await self.connection.execute(
                SQL["close_limits"], [escape_nul(aggregate_id) for aggregate_id in closed]
            )
            await self.connection.execute(SQL["close_set_aside"], [*map(compute_digest, closed)])
        await self._write_visible_state(commit, reasons)

    async def _write_visible_state(self, commit: JournalEntry, ids: Container[str]) -> None:
        """Updates the header and the applied commands of a quarantined aggregate, if possible.

        Lists of executions then still show the state of the aggregate, and its commands are not
        sent again.
        """
        for header in commit.headers:
            if header.execution_id in ids:
                async with self._savepoint():
                    await write_headers(
                        self.connection, [build_header_row(self._partition, header)]
                    )
        async with self._savepoint():
            part = Projection(self._partition)
            part.add(commit, aggregate_ids=ids)
            await write_applied(self.connection, part)

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[list[str]]:
        """Runs the block in a savepoint.

        If PostgreSQL refuses a value, rolls the block back and appends the reason to the yielded
        list.
        """
        problems: list[str] = []
        try:
            async with self.connection.transaction():
                yield problems
                await clear_staged(self.connection)
        except Exception as error:
            if isinstance(error, DRIVER_ERRORS) and not is_refusal(error):
                raise
            problems.append(f"{type(error).__name__}: {error}")


class _AllExcept(Container[str]):
    def __init__(self, excluded: Container[str]) -> None:
        self._excluded = excluded

    def __contains__(self, item: object) -> bool:
        return item not in self._excluded


def _list_ids(commit: JournalEntry) -> Sequence[str]:
    return list(dict.fromkeys([*(id_ for id_, _ in _iterate_rows(commit)), *commit.closed]))


def _iterate_rows(commit: JournalEntry) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yields the id of each aggregate with its row: kind, ordinal, digest, id and body."""
    for ordinal, history in enumerate(commit.histories):
        yield _build_row(history.aggregate_id, "history", ordinal, history.entry)
    for ordinal, header in enumerate(commit.headers):
        yield _build_row(header.execution_id, "header", ordinal, _encode(header))
    for ordinal, letter in enumerate(commit.dead_letters):
        yield _build_row(letter.token.execution_id, "letter", ordinal, _encode(letter))


def _build_row(id_: str, kind: str, ordinal: int, body: bytes) -> tuple[str, tuple[object, ...]]:
    return id_, (kind, ordinal, compute_digest(id_), id_.encode(), body)
