"""Leases of partitions, the owner's state of each lease, and the list of live orchestrators."""

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
# What acquire.lua answers.
OTHER_ARCHIVE = 2
OTHER_ARCHIVE_MESSAGE = (
    "it has another archive than when this process began: end it, and start it with the "
    "POSTGRES_URL of the others"
)
_RUN_ID_SEPARATOR = "@"


@dataclass(slots=True, eq=False)
class LeaseState:
    """The reader's place in the inbox; the earliest timer, which only the owner changes."""

    partition: int
    position: InboxPosition = STREAM_START
    next_due: float | None = None
    is_next_due_known: bool = False
    is_current: bool = True
    """As far as this client knows: False for a lease that it has given up or acquired anew."""


class RedisLeases:
    """No lease survives a restart of the server: its nonce names the life it was acquired in.

    What an owner has read, and decided upon, may be forgotten by a server that comes back, while
    its next commit would still fit. So nothing is sent to another life of the server.

    `incarnation` names the archive that the owner writes for: who writes for none, or for another
    one, gets no lease.
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
        judged = (
            ("", "", "") if expected is None else (expected.owner, expected.epoch, expected.counter)
        )
        key = f"{self._keys.partition}{partition}"
        try:
            answer, *reply = await self._pool.run_script(
                "acquire",
                [key, self._keys.layout],
                [owner, nonce, *judged, epoch_min, self._incarnation],
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
        is_held, *reply = await self._pool.run_script(
            "renew",
            self._build_keys(lease),
            [lease.epoch, lease.nonce],
            expected_run_id=parse_run_id(lease),
        )
        if not is_held:
            raise build_fenced_error(lease, epoch=int(reply[0]))

    async def release(self, lease: Lease) -> None:
        """To another life of the server too: whoever comes next need not wait then."""
        self._states.pop(lease.nonce, None)
        await self._pool.run_script("release", self._build_keys(lease), [lease.epoch, lease.nonce])

    def get_state(self, lease: Lease) -> LeaseState:
        """That of a lease which is not this client's any more is a new one each time."""
        return self._states.get(lease.nonce) or LeaseState(lease.partition, is_current=False)

    def _build_keys(self, lease: Lease) -> list[str]:
        return [f"{self._keys.partition}{lease.partition}"]

    def _forget(self, partition: int) -> None:
        """What is known of leases that this client had of it: the new one ends them all."""
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
    keys: Sequence[str],
    args: Sequence[Arg],
) -> Sequence[Any]:
    """Runs a script that answers first whether the lease is still held; returns the rest.

    Raises FencedError for a lease that is lost, and before anything is sent when the server has
    restarted since the lease was acquired.
    """
    reply: list[Any]
    try:
        is_held, *reply = await pool.run_script(
            name,
            [f"{key_names.partition}{lease.partition}", *keys],
            [lease.epoch, lease.nonce, *args],
            expected_run_id=parse_run_id(lease),
        )
    except ServerChangedError as error:
        raise build_restart_error(lease) from error
    if not is_held:
        raise build_fenced_error(lease, epoch=int(reply[0]))
    return reply


def build_restart_error(lease: Lease) -> FencedError:
    return FencedError(
        lease.partition,
        held=f"epoch {lease.epoch} of a server that has restarted since",
        current="a later life of its server",
    )


# -- orchestrators: a hash of the last heartbeat of each ---------------------------------------


class RedisMembership:
    """`incarnation` names the archive that they write for; who writes for none, or another, is not
    one of them: the others would leave partitions to it.
    """

    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames, *, incarnation: str) -> None:
        self._pool = pool
        self._keys = keys
        self._incarnation = incarnation

    async def heartbeat_orchestrator(self, owner: str) -> Sequence[OrchestratorRecord]:
        keys = [self._keys.orchestrators, self._keys.heartbeat_counter, self._keys.layout]
        pairs = await self._pool.run_script("attend", keys, [owner, self._incarnation])
        if not pairs:
            raise StoreError(f"Redis: {OTHER_ARCHIVE_MESSAGE}")
        return [
            OrchestratorRecord(owner=name.decode(), counter=int(counter))
            for name, counter in zip(pairs[::2], pairs[1::2], strict=True)
        ]

    async def unregister_orchestrator(self, owner: str, counter: int | None) -> None:
        args = [owner, "" if counter is None else counter]
        await self._pool.run_script("depart", [self._keys.orchestrators], args)
