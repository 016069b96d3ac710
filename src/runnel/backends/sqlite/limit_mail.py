"""What keys and those who ask for them tell each other: in memory, as the keys themselves.

Stored, it would outlive the keys: a grant of a process that was killed, read by the next one, lets
one attempt more run than the key allows.
"""

from collections.abc import Iterable

from runnel.backends.sqlite.limits import is_limit
from runnel.backends.sqlite.partition import Owned, OwnedPartitions
from runnel.backends.sqlite.routes import Routes
from runnel.core.codec import decode_entry
from runnel.core.commands import (
    AcquireLimit,
    Command,
    LimitCommand,
    LimitGranted,
    ReleaseLimit,
)
from runnel.core.events import LimitHeld, LimitQueued, LimitReleased
from runnel.core.ids import Token
from runnel.ports.store import Commit

LIMIT_COMMANDS = (AcquireLimit, ReleaseLimit, LimitGranted)


class LimitMail:
    """Keys live in the home partition; who asks may live in another one that is owned here."""

    def __init__(self, owned: OwnedPartitions, routes: Routes) -> None:
        self._owned = owned
        self._routes = routes
        # For each partition but the home: what its attempts hold or wait for.
        self._asked: dict[int, dict[Token, str]] = {}
        self._kept: list[Command] = []

    def send(self, sender: Owned, commit: Commit) -> None:
        """Those of its messages that are about keys.

        A grant for a partition that was left is lost: its next owner asks again.
        """
        grants = [each for each in commit.messages if isinstance(each, LimitGranted)]
        void = _void(sender, commit) if grants else ()
        for grant in grants:
            if grant.holder not in void:
                self._owned.deliver(self._routes.find(grant.aggregate_id), grant)
        for command in commit.messages:
            if isinstance(command, AcquireLimit | ReleaseLimit):
                self._note(sender.lease.partition, command)
                self._tell_key(command)

    def leave(self, partition: int, unconsumed: Iterable[Command]) -> None:
        """Frees the keys of its attempts, which have ended here; what keys were told is kept."""
        self._kept += [command for command in unconsumed if isinstance(command, LimitCommand)]
        for holder, key in self._asked.pop(partition, {}).items():
            self._tell_key(ReleaseLimit(key=key, holder=holder))

    def take_kept(self) -> list[Command]:
        """What the home's next owner has to hear first."""
        kept, self._kept = self._kept, []
        return kept

    def clear(self) -> None:
        self._asked.clear()
        self._kept.clear()

    def _note(self, sender: int, command: AcquireLimit | ReleaseLimit) -> None:
        asked = self._asked.setdefault(sender, {})
        if isinstance(command, AcquireLimit):
            asked[command.holder] = command.key
        else:
            asked.pop(command.holder, None)

    def _tell_key(self, command: LimitCommand) -> None:
        owned = self._owned.by_number.get(self._routes.find(command.aggregate_id))
        if owned is None:
            self._kept.append(command)
        else:
            owned.inbox.put(command)


def _void(sender: Owned, commit: Commit) -> set[Token]:
    """Who has given back, in this commit or right after it, what this commit grants.

    A partition that was left and taken again has the same attempts: they ask anew, and must not
    hear the answer to their first question.
    """
    void: set[Token] = set()
    for history in commit.histories:
        if is_limit(history.aggregate_id):
            for event in decode_entry(history.entry).events:
                if isinstance(event, LimitHeld):
                    void.discard(event.holder)
                elif isinstance(event, LimitQueued | LimitReleased):
                    void.add(event.holder)
    void.update(
        command.holder for command in sender.inbox.unconsumed() if isinstance(command, ReleaseLimit)
    )
    return void
