"""All that a memory backend holds; one event loop changes it, between two awaits at a time."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from runnel.backends.feed_entries import pending_entries
from runnel.backends.local.attendance import LocalAttendance
from runnel.backends.local.board import TaskBoard
from runnel.backends.local.feed import ChangeLog
from runnel.backends.local.inbox import LocalInbox
from runnel.backends.local.timers import LocalTimers
from runnel.backends.stored_definitions import no_longer_stored
from runnel.core.commands import LIMIT_PREFIX, Command, CreateExecution
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId, root_of
from runnel.errors import FencedError
from runnel.ports.archive import Definition
from runnel.ports.records import Record
from runnel.ports.store import Header, Lease, LeaseRecord, pending_header


@dataclass(slots=True, eq=False)
class Partition:
    number: int
    epoch: int = 0
    sequence: int = 0
    counter: int = 0
    lease: Lease | None = None
    inbox: LocalInbox = field(default_factory=LocalInbox)
    timers: LocalTimers = field(default_factory=LocalTimers)

    @property
    def record(self) -> LeaseRecord | None:
        if self.lease is None:
            return None
        return LeaseRecord(
            partition=self.number,
            owner=self.lease.owner,
            epoch=self.epoch,
            counter=self.counter,
        )

    def is_held_by(self, lease: Lease) -> bool:
        current = self.lease
        return current is not None and (current.epoch, current.nonce) == (lease.epoch, lease.nonce)

    def check(self, lease: Lease) -> None:
        """Raises FencedError unless this is the current lease."""
        if not self.is_held_by(lease):
            raise FencedError(
                self.number, held=f"epoch {lease.epoch}", current=f"epoch {self.epoch}"
            )


class MemoryState:
    def __init__(self, partitions: int, *, life: str = "") -> None:
        self.partitions = [Partition(number) for number in range(partitions)]
        self.board = TaskBoard(self.deliver)
        self.attendance = LocalAttendance()
        self.changes = ChangeLog(life)
        self.histories: dict[str, list[bytes]] = {}
        self.headers: dict[ExecutionId, Header] = {}
        self.definitions: dict[DefinitionHash, Definition] = {}
        self.dead_letters: list[DeadLetter] = []
        self.records: dict[tuple[str, str], Record] = {}
        self.revision = 0

    def route(self, aggregate_id: str) -> int:
        """The same in every process and version: a tree of children lives with its root."""
        is_limit = aggregate_id.startswith(LIMIT_PREFIX)
        key = aggregate_id if is_limit else root_of(ExecutionId(aggregate_id))
        return zlib.crc32(key.encode()) % len(self.partitions)

    def deliver(self, partition: int, command: Command) -> None:
        self.partitions[partition].inbox.put(command)

    def send(self, commands: Sequence[Command], *, of_stored: bool = False) -> None:
        """Raises NotFoundError as `Mailbox.send` does."""
        if of_stored:
            self._check_stored(commands)
        made: list[ExecutionId] = []
        for command in commands:
            if isinstance(command, CreateExecution) and command.execution_id not in self.headers:
                self.headers[command.execution_id] = pending_header(command)
                made.append(command.execution_id)
            self.deliver(self.route(command.aggregate_id), command)
        if made:
            self.changes.add(pending_entries(made))

    def _check_stored(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, CreateExecution):
                found = self.definitions.get(command.definition)
                if found is None or found.version < 0:
                    raise no_longer_stored(command)
