"""Leases of partitions, the local state of each held lease, and the list of orchestrators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runnel.backends.redis.connection import Arg
from runnel.backends.redis.connection_pool import RedisConnectionPool, ServerChangedError
from runnel.backends.redis.keys import RedisKeyNames
from runnel.errors import FencedError, LeaseHeldError, PartitionUnavailableError, StoreError
from runnel.ports.clock import IdGenerator
from runnel.ports.store import InboxPosition, Lease, LeaseRecord
from runnel.ports.workers import OrchestratorRecord

STREAM_START = InboxPosition("0-0")
# A reply of acquire_partition.lua.
OTHER_ARCHIVE = 2
OTHER_ARCHIVE_MESSAGE = (
    "its archive has changed since this process started: restart this process with the "
    "POSTGRES_URL of the other processes"
)
_RUN_ID_SEPARATOR = "@"


@dataclass(slots=True, eq=False)
class LeaseState:
    """The read position of the owner in its inbox, and its earliest timer."""

    partition: int
    position: InboxPosition = STREAM_START
    next_due: float | None = None
    is_next_due_known: bool = False
    is_current: bool = True
    """False for a lease that this client has released or replaced by a newer one."""


class RedisLeases:
    """Acquires, renews and releases leases.

    No lease survives a restart of the server, because the nonce of a lease contains the run id of
    the server. A restarted server may have lost data that the owner has already used in decisions,
    and would still accept its next commit. The owner therefore sends nothing to a server with
    another run id.

    `incarnation` names the archive that the owner writes to. An owner without an archive, or with
    another archive, gets no lease.
    """

    def __init__(
        self,
        pool: RedisConnectionPool,
        keys: RedisKeyNames,
        ids: IdGenerator,
        *,
        incarnation: str = "",
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._ids = ids
        self._incarnation = incarnation
        self._states: dict[str, LeaseState] = {}

    async def observe(self, partition: int) -> LeaseRecord | None:
        key = f"{self._keys.partition}{partition}"
        owner, epoch, counter = await self._pool.call("HMGET", key, "owner", "epoch", "counter")
        if owner is None:
            return None
        return LeaseRecord(
            partition=partition, owner=owner.decode(), epoch=int(epoch), counter=int(counter or 0)
        )

    async def acquire(
        self, partition: int, owner: str, *, expected: LeaseRecord | None, epoch_min: int = 0
    ) -> Lease:
        run_id = await self._pool.run_id()
        nonce = f"{self._ids.nonce()}{_RUN_ID_SEPARATOR}{run_id}"
        expected_values = (
            ("", "", "") if expected is None else (expected.owner, expected.epoch, expected.counter)
        )
        key = f"{self._keys.partition}{partition}"
        try:
            answer, *reply = await self._pool.run_script(
                "acquire_partition",
                [key, self._keys.layout],
                [owner, nonce, *expected_values, epoch_min, self._incarnation],
                expected_run_id=run_id,
            )
        except ServerChangedError as error:
            raise StoreError("Redis restarted while a lease was acquired: try again") from error
        if answer == OTHER_ARCHIVE:
            raise PartitionUnavailableError(partition, OTHER_ARCHIVE_MESSAGE)
        if not answer:
            raise LeaseHeldError(partition, reply[0].decode())
        epoch, sequence, cursor = reply
        self._forget(partition)
        self._states[nonce] = LeaseState(partition, position=InboxPosition(cursor.decode()))
        return Lease(
            partition=partition, owner=owner, epoch=epoch, nonce=nonce, sequence=int(sequence)
        )

    async def renew(self, lease: Lease) -> None:
        await run_fenced_script(self._pool, self._keys, lease, "renew_lease")

    async def release(self, lease: Lease) -> None:
        """Releases the lease, even on a restarted server, so that the next owner need not wait."""
        self._states.pop(lease.nonce, None)
        key = f"{self._keys.partition}{lease.partition}"
        await self._pool.run_script("release_partition", [key], [lease.epoch, lease.nonce])

    def get_state(self, lease: Lease) -> LeaseState:
        """Returns the local state of the lease.

        For a lease that is not held, returns a new state each time.
        """
        return self._states.get(lease.nonce) or LeaseState(lease.partition, is_current=False)

    def _forget(self, partition: int) -> None:
        """Removes the local states of earlier leases of the partition."""
        for nonce in [key for key, state in self._states.items() if state.partition == partition]:
            del self._states[nonce]


def parse_run_id(lease: Lease) -> str:
    return lease.nonce.rpartition(_RUN_ID_SEPARATOR)[2]


def build_fenced_error(lease: Lease, *, epoch: int) -> FencedError:
    return FencedError(
        lease.partition, held=f"epoch {lease.epoch}", current=f"epoch {epoch}, or is free"
    )


async def run_fenced_script(
    pool: RedisConnectionPool,
    key_names: RedisKeyNames,
    lease: Lease,
    name: str,
    *,
    keys: Sequence[str] = (),
    args: Sequence[Arg] = (),
    is_large: bool = False,
) -> Sequence[Any]:
    """Runs a script whose first result says whether the lease is held; returns the other results.

    Raises FencedError if the lease is lost. If the server has restarted since the lease was
    acquired, sends nothing and raises FencedError.
    """
    reply: list[Any]
    with RestartFence(lease):
        is_held, *reply = await pool.run_script(
            name,
            [f"{key_names.partition}{lease.partition}", *keys],
            [lease.epoch, lease.nonce, *args],
            expected_run_id=parse_run_id(lease),
            is_large=is_large,
        )
    if not is_held:
        raise build_fenced_error(lease, epoch=int(reply[0]))
    return reply


class RestartFence:
    """A context manager that turns ServerChangedError into FencedError.

    A server that has restarted since the lease was acquired may have lost data of the owner.
    """

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ServerChangedError):
            raise FencedError(
                self._lease.partition,
                held=f"epoch {self._lease.epoch} from before a restart of Redis",
                current="a later run of Redis",
            ) from error


# -- orchestrators: a hash with the last heartbeat of each orchestrator -------------------------


class RedisMembership:
    """Registers orchestrators and lists them.

    `incarnation` names the archive that the orchestrators write to. An orchestrator without an
    archive, or with another archive, is not registered. If it were, the other orchestrators would
    leave partitions to it.
    """

    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames, *, incarnation: str) -> None:
        self._pool = pool
        self._keys = keys
        self._incarnation = incarnation

    async def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        keys = [self._keys.orchestrators, self._keys.heartbeat_counter, self._keys.layout]
        pairs = await self._pool.run_script(
            "heartbeat_orchestrator", keys, [owner, self._incarnation]
        )
        if not pairs:
            raise StoreError(f"Redis: {OTHER_ARCHIVE_MESSAGE}")
        return [
            OrchestratorRecord(owner=name.decode(), counter=int(counter))
            for name, counter in zip(pairs[::2], pairs[1::2], strict=True)
        ]

    async def unregister_orchestrator(self, owner: str, counter: int | None) -> None:
        args = [owner, "" if counter is None else counter]
        await self._pool.run_script("unregister_orchestrator", [self._keys.orchestrators], args)
