"""What the archive has deleted, and a Redis that was set back still has: it must not run again."""

from collections.abc import Iterable
from contextlib import suppress

from runnel.backends.postgres.lost import Lost
from runnel.backends.redis.journal import RedisJournal
from runnel.core.codec import decode_message
from runnel.core.commands import CreateExecution
from runnel.core.ids import ExecutionId, root_of
from runnel.errors import UnreadableFormatError
from runnel.ports.store import Lease

AT_ONCE = 500


class Deleted:
    """Of a partition that the archive is ahead of.

    All that runs in such a Redis was archived, and what waits in an inbox to be made was recorded
    before it was sent: so a root that the archive does not have any more was final, and deleted.
    """

    def __init__(self, journal: RedisJournal, lost: Lost) -> None:
        self._journal = journal
        self._lost = lost

    async def drop(self, lease: Lease) -> set[ExecutionId]:
        """The executions that were removed from Redis, and are to have no tasks."""
        # Redis first: what comes in between is recorded before it is there.
        running = await self._journal.running(lease.partition)
        unread = await self._journal.unread(lease.partition)
        roots = {root_of(id_) for id_ in (*running, *made_by(unread))}
        deleted = roots - await self._lost.known(lease.partition, sorted(roots))
        gone: set[ExecutionId] = set()
        for root in sorted(deleted):
            gone |= {ExecutionId(id_.decode()) for id_ in await self._journal.tree(root)}
        ids = sorted(gone)
        for first in range(0, len(ids), AT_ONCE):
            await self._journal.drop_executions(lease, ids[first : first + AT_ONCE])
        if deleted:
            await self._journal.drop_unread(lease, lambda body: _root_in(body) in deleted)
        return gone


def made_by(messages: Iterable[bytes]) -> set[ExecutionId]:
    found: set[ExecutionId] = set()
    for message in messages:
        with suppress(UnreadableFormatError):
            command = decode_message(message)
            if isinstance(command, CreateExecution):
                found.add(command.execution_id)
    return found


def _root_in(body: bytes) -> ExecutionId | None:
    """Of the execution that a message is for; None for one that can't be read."""
    try:
        return root_of(ExecutionId(decode_message(body).aggregate_id))
    except UnreadableFormatError:
        return None
