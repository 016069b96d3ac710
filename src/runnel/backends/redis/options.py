"""Options of a store on a Redis server, without the URL, which can contain a password."""

import msgspec

from runnel.ports.store import CommitLimits


class RedisOptions(msgspec.Struct, frozen=True, kw_only=True):
    partitions: int | None = None
    """The number of partitions of a new store, which can't be changed later. None uses the stored
    number.
    """
    prefix: str = "runnel"
    call_timeout_s: float = 5.0
    """A call to Redis that takes longer fails."""
    calls_max: int = 16
    """Maximum number of calls in flight. The server executes calls one after the other anyway."""
    block_s: float = 30.0
    """Maximum duration of one blocking call. Each blocking call has an exclusive connection."""
    limits: CommitLimits = CommitLimits()
    letters_max: int = 10_000
    """Each queue keeps about this number of dead letters; the oldest letters are removed first."""
    journal_entries_max: int = 100_000
    """Maximum number of commits that a partition keeps for its archive.

    If PostgreSQL is down until this number is reached, the partition makes no more decisions.
    """


DEFAULT_REDIS_OPTIONS = RedisOptions()
