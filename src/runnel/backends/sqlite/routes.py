"""Which partition an execution lives in: its root's, wherever that was made."""

from collections import OrderedDict

from runnel.backends.sqlite.limits import is_limit
from runnel.backends.sqlite.reader import Reader
from runnel.core.ids import ExecutionId, root_of

CACHE_MAX = 50_000
NOWHERE = 0


class Routes:
    """An execution that nobody knows yet is made in this process's own partition."""

    def __init__(self, reader: Reader) -> None:
        self.home: int | None = None
        self._reader = reader
        self._known: OrderedDict[str, int] = OrderedDict()
        # Executions that this process has just made, and that have no history yet: looking for
        # one took 20 µs, a twentieth of what a small execution costs altogether.
        self.unbegun: set[str] = set()

    def find(self, aggregate_id: str) -> int:
        home = NOWHERE if self.home is None else self.home
        if is_limit(aggregate_id):
            return home
        root = root_of(ExecutionId(aggregate_id))
        known = self._known.get(root)
        if known is None:
            rows = self._reader.rows("get_home", (root,))
            if not rows:
                return home
            known = int(rows[0][0])
            self.learn(root, known)
        return known

    def place(self, root: str) -> int:
        """Where an execution goes that is to be made now."""
        known = self._known.get(root)
        if known is None:
            known = NOWHERE if self.home is None else self.home
            self.learn(root, known)
        return known

    def learn(self, root: str, partition: int) -> None:
        self._known[root] = partition
        if len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
