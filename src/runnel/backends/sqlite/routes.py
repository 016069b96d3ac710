"""Which partition an execution lives in: its root's, wherever that was made."""

from collections import OrderedDict

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

    def find(self, aggregate_id: str) -> int:
        home = NOWHERE if self.home is None else self.home
        if aggregate_id.startswith("limit:"):
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

    def learn(self, root: str, partition: int) -> None:
        self._known[root] = partition
        if len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
