"""Decides whether workers may claim tasks from the current run of the Redis server.

A server that restarted may have been rolled back. Its queues then hold tasks of executions that
have ended. The owner of each partition compares it with the archive and drops such tasks. Until
then, workers claim nothing.
"""

import msgspec

from runnel.backends.redis.connection_pool import RedisConnectionPool, ServerChangedError
from runnel.backends.redis.keys import RedisKeyNames
from runnel.ports.clock import Clock

# The interval in which a worker asks whether the partitions of a restarted server are accepted.
ACCEPTANCE_POLL_S = 0.1
# After this time, workers claim the tasks of the accepted partitions, so that one partition that
# can't be restored does not block the others. Owners usually accept all partitions within 2 s.
OTHER_PARTITIONS_WAIT_S = 10.0


class ServerRun(msgspec.Struct, frozen=True):
    """A run of the server from which tasks may be claimed.

    `is_complete` means that all partitions are accepted. If not, a claim checks the partition of
    each task.
    """

    run_id: str
    is_complete: bool


class ServerAcceptance:
    """Knows whether owners have accepted the current run of the server.

    An owner accepts a partition by `verify_partition.lua`. A store without an archive has nothing
    to compare with, so its partitions count as accepted. Once all partitions of a run are accepted,
    the answer needs no call.
    """

    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames, clock: Clock) -> None:
        self._pool = pool
        self._keys = keys
        self._clock = clock
        self._accepted: ServerRun | None = None
        self._pending_run_id = ""
        self._pending_since = 0.0

    async def find_run(self) -> ServerRun | None:
        """Returns the current run of the server, or None if tasks must not be claimed from it yet.

        The caller passes the run id with each claim. A server that has restarted since then gets
        no claim.
        """
        run_id = await self._pool.run_id()
        if self._accepted is not None and self._accepted.run_id == run_id:
            return self._accepted
        if run_id != self._pending_run_id:
            self._pending_run_id = run_id
            self._pending_since = self._clock.monotonic()
        try:
            accepted, partitions = await self._pool.run_script(
                "count_accepted",
                [self._keys.layout, self._keys.partition],
                [run_id],
                expected_run_id=run_id,
            )
        except ServerChangedError:
            return None
        if accepted == partitions:
            self._accepted = ServerRun(run_id, is_complete=True)
            return self._accepted
        waited_s = self._clock.monotonic() - self._pending_since
        if not accepted or waited_s < OTHER_PARTITIONS_WAIT_S:
            return None
        return ServerRun(run_id, is_complete=False)
