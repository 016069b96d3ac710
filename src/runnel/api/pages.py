"""Pages of changes as messages, made once for all who are told the same."""

from collections.abc import Sequence

from runnel.api.messages import message
from runnel.ports.feed import FeedPage

KEPT = 100


class Pages:
    """Who listens to all is handed the same pages: the last ones are kept as they were told."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, bool], tuple[FeedPage, bytes]] = {}

    def told(self, pages: Sequence[FeedPage], *, children: bool) -> bytes:
        """Empty when there is nothing to tell."""
        return b"".join([self._one(each, children=children) for each in pages])

    def _one(self, page: FeedPage, *, children: bool) -> bytes:
        """A page that is kept keeps its `id`, too."""
        key = (id(page), children)
        known = self._told.get(key)
        if known is None:
            known = self._told[key] = (page, _told(page, children=children))
            if len(self._told) > KEPT:
                del self._told[next(iter(self._told))]
        return known[1]


def _told(page: FeedPage, *, children: bool) -> bytes:
    gap = [message(page.position, "gap", {})] if page.has_gap else []
    changes = [
        message(
            each.position,
            "execution",
            {"execution_id": each.execution_id, "status": each.state},
        )
        for each in page.changes
        if children or "." not in each.execution_id
    ]
    return b"".join([*gap, *changes])
