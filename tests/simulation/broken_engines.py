"""Engines with one rule broken: a sweep that does not find these finds nothing.

Each breaks the product in the process that calls it, and returns where to look.
"""

from collections.abc import Iterator

import msgspec
import pytest

from runnel.core.commands import Command, TaskLost
from runnel.core.ids import ExecutionId
from runnel.engine.orchestrator import recovery
from runnel.engine.orchestrator.batch import CommitBatch
from runnel.engine.orchestrator.partition_owner import PartitionOwner
from runnel.engine.services.dead_workers import Reaper
from runnel.ports.store import Commit, Store
from runnel.ports.telemetry import Telemetry
from simulation.crash_points.scenario import Scenario
from tests.simulation.crash_scenarios import scenarios

_commands_for = recovery._make_recovery_commands  # noqa: SLF001 - what is to be broken is its inside
_seal = CommitBatch.seal


def keeps_the_inbox() -> list[Scenario]:
    """What was acted on is acted on again by the next owner, and by the one after it."""

    def seal(self: CommitBatch, sequence: int) -> Iterator[Commit]:
        for commit in _seal(self, sequence):
            yield msgspec.structs.replace(commit, consumed=None)

    pytest.MonkeyPatch().setattr(CommitBatch, "seal", seal)
    return _named("chain")


def consumes_before_it_acts() -> list[Scenario]:
    """Two commits where there should be one: a command is lost between them."""

    def seal(self: CommitBatch, sequence: int) -> Iterator[Commit]:
        if self.consumed is not None:
            yield Commit(sequence=sequence, consumed=self.consumed)
            sequence += 1
        self.consumed = None
        yield from _seal(self, sequence)

    pytest.MonkeyPatch().setattr(CommitBatch, "seal", seal)
    return _named("chain")


def does_not_resume() -> list[Scenario]:
    """Lost tasks are issued anew, and what waited for a key waits for ever."""

    async def commands_for(
        owner: PartitionOwner, store: Store, telemetry: Telemetry, execution_id: ExecutionId
    ) -> list[Command]:
        found = await _commands_for(owner, store, telemetry, execution_id)
        return [command for command in found if isinstance(command, TaskLost)]

    pytest.MonkeyPatch().setattr(recovery, "_make_recovery_commands", commands_for)
    return _named("key")


def forgets_the_dead() -> list[Scenario]:
    """Nobody tells the owner that what a dead worker held is lost."""

    async def tick(_self: Reaper) -> int:
        return 0

    pytest.MonkeyPatch().setattr(Reaper, "tick", tick)
    return _named("chain")


def _named(name: str) -> list[Scenario]:
    return [each for each in scenarios() if each.name == name]
