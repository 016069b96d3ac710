"""Which of the tasks that ran when a process died has killed it? Each is tried.

A task that had just begun when its process died is a suspect: it, or one that ran next to it, is
the killer. One suspect at a time is on trial: nothing else begins until it has ended or has run
for a moment, and nothing that has just begun runs beside it. Then it is cleared. If the process
dies instead, the suspect is to blame, and nothing that ran beside it.

A first trial comes before everything else, and takes a moment at most. One that has died on trial
is tried again after everything else, when nothing runs at all: what a killer could disturb has
ended before it gets another chance. Only when very many have overtaken it, it need not be alone.
"""

from collections.abc import Collection

from runnel.backends.local.queues import Entry
from runnel.core.ids import Ref, ref_of

# So many tasks may begin before one that has died on trial; then it is next, beside what runs for
# long, as in a first trial: it must not wait for ever, nor anybody for it.
OVERTAKERS_MAX = 1_000
# When nothing has come for so long, a recovery has issued what it had to, results are committed.
QUIET_S = 0.05


class Trials:
    """`suspects` is empty almost always, and then there is nothing else here either."""

    def __init__(self) -> None:
        self.suspects: dict[Ref, bool] = {}
        self.on_trial: Entry | None = None
        self._waiting: list[Entry] = []
        self._overtakers = 0

    @property
    def is_overdue(self) -> bool:
        return self._overtakers >= OVERTAKERS_MAX

    def add(self, entry: Entry) -> bool:
        """False for a task that is not suspected."""
        if ref_of(entry.task.token) not in self.suspects:
            return False
        self._waiting.append(entry)
        return True

    def find(self, wanted: Collection[str] | None) -> Entry | None:
        """The suspect whose turn it is; those that have died on trial come last."""
        found = [entry for entry in self._waiting if wanted is None or entry.task.queue in wanted]
        return min(found, key=self.has_died, default=None)

    def has_died(self, entry: Entry) -> bool:
        """Whether this suspect was on trial when its process died."""
        return self.suspects[ref_of(entry.task.token)]

    def begin(self, entry: Entry) -> None:
        self._waiting.remove(entry)
        self.on_trial = entry
        self._overtakers = 0

    def overtake(self, count: int) -> None:
        self._overtakers += count

    def leave(self, entry: Entry) -> None:
        """The task is gone, for whatever reason; it may come back as a new attempt."""
        if entry is self.on_trial:
            self.on_trial = None
        elif entry in self._waiting:
            self._waiting.remove(entry)

    def clear(self, entry: Entry) -> None:
        """It has ended by itself, or has run for a while, and its process lives."""
        self.on_trial = None
        del self.suspects[ref_of(entry.task.token)]
