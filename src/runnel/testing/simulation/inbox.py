"""The inbox of a partition as a stream: positions only grow, and the reader keeps its own place."""

from collections.abc import Sequence

from runnel.backends.local.inbox import VOLATILE, LocalInbox
from runnel.core.codec import encode_message
from runnel.core.commands import TASK_ENDINGS, Command
from runnel.core.ids import Token
from runnel.errors import BrokenInvariantError
from runnel.ports.store import InboxEntry, Position


class Positions:
    """Shared by all copies of an inbox: a store that is set back does not reuse a position.

    Redis makes its stream ids of the time of day, to the same effect.
    """

    def __init__(self) -> None:
        self.next = 0


class StreamInbox(LocalInbox):
    """Entries stay until a commit has consumed them; each lease reads them all from there."""

    def __init__(self, positions: Positions | None = None) -> None:
        super().__init__()
        self.positions = positions or Positions()
        self.entries: list[InboxEntry] = []

    def copy(self) -> "StreamInbox":
        inbox = StreamInbox(self.positions)
        inbox.entries = list(self.entries)
        return inbox

    def after(self, position: Position | None, limit: int) -> Sequence[InboxEntry]:
        start = -1 if position is None else int(position)
        return [entry for entry in self.entries if int(entry.position) > start][:limit]

    def up_to(self, position: Position | None) -> list[InboxEntry]:
        """What consuming `position` takes away."""
        end = -1 if position is None else int(position)
        return [entry for entry in self.entries if int(entry.position) <= end]

    def rewind(self) -> None:
        self.arrived.set()

    def check(self, position: Position | None) -> None:
        if position is not None and int(position) >= self.positions.next:
            raise BrokenInvariantError(f"inbox position {position} was never given")

    def consume(self, position: Position | None) -> None:
        gone = len(self.up_to(position))
        del self.entries[:gone]

    def put(self, command: Command, row: int = VOLATILE) -> None:
        """Through the codec, as every message of a real store: what it does not keep is lost."""
        self.put_raw(encode_message(command), row)

    def reported(self) -> set[Token]:
        return {
            entry.command.token for entry in self.entries if isinstance(entry.command, TASK_ENDINGS)
        }

    def _next_position(self) -> Position:
        return Position(str(self.positions.next))

    def _append(self, entry: InboxEntry, row: int = VOLATILE) -> None:
        self.positions.next += 1
        self.entries.append(entry)
        self.arrived.set()
