"""Engines with one broken rule. A crash-point sweep must find each of them.

Each function breaks the engine in its own process and returns the scenarios that reveal it.
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

_commands_for = recovery._make_recovery_commands  # noqa: SLF001 - this replaces a private function
_seal = CommitBatch.seal


def keeps_the_inbox() -> list[Scenario]:
    """Never consumes the inbox, so that every owner handles all commands again."""

    def seal(self: CommitBatch, sequence: int) -> Iterator[Commit]:
        for commit in _seal(self, sequence):
            yield msgspec.structs.replace(commit, consumed=None)

    pytest.MonkeyPatch().setattr(CommitBatch, "seal", seal)
    return _select("chain")


def consumes_before_it_acts() -> list[Scenario]:
    """Consumes a command in one commit and stores its result in a second one."""

    def seal(self: CommitBatch, sequence: int) -> Iterator[Commit]:
        if self.consumed is not None:
            yield Commit(sequence=sequence, consumed=self.consumed)
            sequence += 1
        self.consumed = None
        yield from _seal(self, sequence)

    pytest.MonkeyPatch().setattr(CommitBatch, "seal", seal)
    return _select("chain")


def does_not_resume() -> list[Scenario]:
    """Issues lost tasks again, but never resumes waits for a key."""

    async def commands_for(
        owner: PartitionOwner, store: Store, telemetry: Telemetry, execution_id: ExecutionId
    ) -> list[Command]:
        commands = await _commands_for(owner, store, telemetry, execution_id)
        return [command for command in commands if isinstance(command, TaskLost)]

    pytest.MonkeyPatch().setattr(recovery, "_make_recovery_commands", commands_for)
    return _select("key")


def forgets_the_dead() -> list[Scenario]:
    """Never reports the tasks of a dead worker as lost."""

    async def tick(_self: Reaper) -> int:
        return 0

    pytest.MonkeyPatch().setattr(Reaper, "tick", tick)
    return _select("chain")


def _select(name: str) -> list[Scenario]:
    return [scenario for scenario in scenarios() if scenario.name == name]
