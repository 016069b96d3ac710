"""The engine-wide limits that deciding obeys."""

import msgspec

from runnel.core.values import INLINE_BYTES_MAX, SHARED_BYTES_MAX


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """`losses_max` is how many dead workers one task may leave behind before it is set aside.

    `window` bounds the tasks of one execution (and the items of one map) that are out at once.
    A value of more than `shared_bytes_max` is put aside before a map begins whose items would carry
    more of it, all together, than `inline_bytes_max`.
    """

    losses_max: int = 10
    window: int = 1_000
    inline_bytes_max: int = INLINE_BYTES_MAX
    shared_bytes_max: int = SHARED_BYTES_MAX
    map_items_max: int = 1_000_000
    keeps_exhausted: bool = False
    """Whether tasks whose retries are used up go to the dead letters too (DLQ_POLICY=all)."""
