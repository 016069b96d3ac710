"""How far an archiver has got with a partition, and what it has told of it."""

from collections import deque

from runnel.ports.store import Position

COMMITS_MAX = 100


class Progress:
    """Of one lease; `archived` None is asked of the archive, `batch` commits are tried at once."""

    __slots__ = (
        "_told",
        "archived",
        "batch",
        "caught_up_at",
        "has_more",
        "marks",
        "read",
        "resend_at",
        "told_at",
    )

    def __init__(self, now: float) -> None:
        self.archived: int | None = None
        self.caught_up_at = now
        self.told_at: float | None = None
        self.resend_at = now
        self.marks: deque[tuple[float, int]] = deque()
        self.read: tuple[int, Position] | None = None
        self.batch = COMMITS_MAX
        self.has_more = False
        self._told: dict[str, float] = {}

    def is_to_be_told(self, call: str, now: float, *, every_s: float) -> bool:
        """At once when it fails for the first time, then every so often."""
        last = self._told.get(call)
        if last is not None and now - last < every_s:
            return False
        self._told[call] = now
        return True

    def note_archived(self, now: float, *, every_s: float) -> None:
        is_due = not self.marks or now - self.marks[-1][0] >= every_s
        if self.archived is not None and is_due:
            self.marks.append((now, self.archived))

    def archived_before(self, then: float) -> int | None:
        """How far it was then; None when that is not known any more, or was told before."""
        found = None
        while self.marks and self.marks[0][0] <= then:
            found = self.marks.popleft()[1]
        return found
