"""Limits and names of a store on a Redis server; the URL is apart, because it holds a password."""

import msgspec

from runnel.ports.store import CommitLimits


class RedisOptions(msgspec.Struct, frozen=True, kw_only=True):
    partitions: int | None = None
    """For a store that is opened for the first time: it can't be changed. None takes the stored
    number.
    """
    prefix: str = "runnel"
    call_timeout_s: float = 5.0
    """A call that takes longer fails."""
    calls_max: int = 16
    """Calls under way at a time: the server does one after the other anyway."""
    block_s: float = 30.0
    """How long one wait lasts at most; each wait has a connection of its own."""
    limits: CommitLimits = CommitLimits()
    letters_max: int = 10_000
    """Each queue keeps about so many dead letters: the oldest are removed first."""
    journal_entries_max: int = 100_000
    """Commits that a partition keeps for its archive at most: with PostgreSQL down for longer than
    that takes, deciding stops.
    """


DEFAULT_REDIS_OPTIONS = RedisOptions()
