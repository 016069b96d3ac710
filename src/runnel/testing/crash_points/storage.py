"""Where the processes of a crash point keep what they store."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from runnel.core.codec import decode_entry
from runnel.core.events import NodeCancelled, NodeCompleted, NodeFailed, NodeSkipped
from runnel.core.ids import ExecutionId, Nonce, Token
from runnel.ports.backend import Backend
from runnel.ports.store import CommitLimits
from runnel.runtime.engine import World
from runnel.settings import Settings
from runnel.testing.crash_points.diary import Diary
from runnel.testing.crash_points.moments import Moments

SHUTDOWN_S = 0.2

_SETTLED = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """`settled` are idempotency keys; `left_over` counts what nobody would look at again, once
    every execution is final and every process has ended in good order.
    """

    settled: list[str]
    left_over: dict[str, int]
    dead_letters: int


class Opened(msgspec.Struct, frozen=True):
    """Two ways to one store: what the engine does is counted, what is looked up is not."""

    counted: Backend
    plain: Backend


class Storage(Protocol):
    """Every point has a place of its own in it, which its diary names."""

    is_shared: bool
    """Nothing frees what a dead process held: others have to find out that it is dead."""

    def world(self) -> World: ...

    def settings(self, diary: Diary, *, is_hasty: bool) -> Settings:
        """Those of a process that soon notices what happened to others, if it `is_hasty`."""

    async def open(
        self, diary: Diary, world: World, limits: CommitLimits, moments: Moments
    ) -> Opened: ...

    def remains(self, diary: Diary) -> Remains:
        """Read from what is stored itself, as no port would show it."""

    def copy(self, source: Diary, target: Diary) -> None:
        """What is not in the diary's folder."""

    def remove(self, diary: Diary) -> None:
        """As `copy`."""


def settled_in(histories: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """The idempotency keys of nodes and items that these entries, by aggregate id, settle."""
    for aggregate_id, entry in histories:
        for event in decode_entry(entry).events:
            if isinstance(event, _SETTLED):
                id_ = ExecutionId(aggregate_id)
                yield Token(id_, event.node, event.item, 0, Nonce("")).idempotency_key
