"""What this process holds in memory of the partitions that it owns."""

from dataclasses import dataclass, field

from runnel.backends.local.inbox import LocalInbox
from runnel.backends.local.timers import LocalTimers
from runnel.backends.sqlite.bell import Bell
from runnel.backends.sqlite.running_file import RunningFile
from runnel.core.commands import Command
from runnel.errors import FencedError
from runnel.ports.store import Lease


@dataclass(slots=True, eq=False)
class Owned:
    """`swept_at` is when the table was last looked at for messages of other processes."""

    lease: Lease
    inbox: LocalInbox
    timers: LocalTimers
    bell: Bell
    running: RunningFile
    swept_at: float


@dataclass(slots=True)
class OwnedPartitions:
    by_number: dict[int, Owned] = field(default_factory=dict)

    def get(self, lease: Lease) -> Owned:
        """Raises FencedError unless this is the current lease."""
        owned = self.find(lease)
        if owned is None:
            current = self.by_number.get(lease.partition)
            raise FencedError(
                lease.partition,
                held=f"epoch {lease.epoch}",
                current="no lease here" if current is None else f"epoch {current.lease.epoch}",
            )
        return owned

    def find(self, lease: Lease) -> Owned | None:
        owned = self.by_number.get(lease.partition)
        if owned is None or owned.lease.nonce != lease.nonce:
            return None
        return owned if owned.lease.epoch == lease.epoch else None

    def deliver(self, partition: int, command: Command) -> None:
        """A worker's report: volatile until the commit that consumes it.

        Of a partition that was given up nothing is kept: its next owner issues the task anew.
        """
        owned = self.by_number.get(partition)
        if owned is not None:
            owned.inbox.put(command)
