"""Concurrency keys: who holds each one, and who waits for it."""

from collections.abc import Sequence
from heapq import nsmallest

import msgspec

from runnel.core.commands import limit_id
from runnel.core.ids import NO_ITEM, Token
from runnel.core.limit import Limit, replay_limit
from runnel.ports.store import Store

SHOWN_MAX = 100


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt; `limit` is how many may hold the key at once, as its node says."""

    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    limit: int


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """`holders` and `waiters` are the first hundred, those next in line first."""

    key: str
    holding: int
    waiting: int
    holders: Sequence[Holder]
    waiters: Sequence[Holder]


async def list_limits(store: Store, *, after: str = "", limit: int = 50) -> list[LimitView]:
    """Those that somebody holds or waits for, by key; `after` is the last key of a page."""
    found: list[LimitView] = []
    while len(found) < limit:
        keys = await _next_keys(store, after, limit)
        histories = await store.load_many([limit_id(key) for key in keys])
        views = [
            _view(replay_limit(key, entries)) for key, entries in zip(keys, histories, strict=True)
        ]
        found += [view for view in views if view.holding or view.waiting]
        if len(keys) < limit:
            break
        after = keys[-1]
    return found[:limit]


async def _next_keys(store: Store, after: str, limit: int) -> list[str]:
    partitions = await store.partitions()
    keys = {key for each in partitions for key in await store.keys_of(each) if key > after}
    return nsmallest(limit, keys)


def _view(limit: Limit) -> LimitView:
    return LimitView(
        key=limit.key,
        holding=len(limit.holders),
        waiting=len(limit.waiters),
        holders=[_holder(*each) for each in list(limit.holders.items())[:SHOWN_MAX]],
        waiters=[_holder(*each) for each in list(limit.waiters.items())[:SHOWN_MAX]],
    )


def _holder(token: Token, limit: int) -> Holder:
    return Holder(
        execution_id=token.execution_id,
        node_id=token.node_id,
        item=None if token.item == NO_ITEM else token.item,
        attempt=token.attempt,
        limit=limit,
    )
