"""Names the cycles of a workflow, node by node, and what can never start because of them."""

from collections import deque
from collections.abc import Iterator, Sequence

from runnel.core.checks.structure import Structure
from runnel.core.checks.wording import listed, shorten

CYCLES_SHOWN = 10
PATH_SHOWN = 12


def cycle_problems(structure: Structure) -> Iterator[str]:
    """One cycle for each knot (strongly connected part), then what waits behind them."""
    if len(structure.order) == len(structure.nodes):
        return
    knots = sorted((knot for knot in _connected(structure) if len(knot) > 1), key=min)
    for knot in knots[:CYCLES_SHOWN]:
        yield _sentence(structure, _shortest_cycle(structure, knot))
    if len(knots) > CYCLES_SHOWN:
        yield f"cycle: {len(knots) - CYCLES_SHOWN:,} more besides these; remove these first"
    if all(node.dependencies for node in structure.nodes):
        yield (
            "no root: every node waits for another one; expected at least one node without "
            "dependencies, which starts first"
        )
    tied = {at for knot in knots for at in knot}.union(structure.order)
    behind = [structure.id(at) for at in range(len(structure.nodes)) if at not in tied]
    if behind:
        are = "it is" if len(behind) == 1 else "they are"
        yield f"unreachable: {listed(behind)} can never start, because {are} behind a cycle"


def _sentence(structure: Structure, cycle: Sequence[int]) -> str:
    names = [shorten(structure.id(at)) for at in (*cycle, cycle[0])]
    if len(names) > PATH_SHOWN:
        left_out = len(names) - PATH_SHOWN
        half = PATH_SHOWN // 2
        names = [*names[:half], f"… ({left_out:,} more) …", *names[-half:]]
    return f"cycle: {' → '.join(names)}; remove one of these dependencies"


def _shortest_cycle(structure: Structure, knot: Sequence[int]) -> list[int]:
    """The shortest one through the knot's first node, in the order in which nodes would run.

    There always is one: from each node of a knot a way leads to every other.
    """
    first = min(knot)
    inside = set(knot)
    came_from: dict[int, int] = {}
    queue = deque([first])
    while True:
        at = queue.popleft()
        for child in structure.children[at]:
            if child == first:
                return _walk_back(came_from, first=first, last=at)
            if child in inside and child not in came_from:
                came_from[child] = at
                queue.append(child)


def _walk_back(came_from: dict[int, int], *, first: int, last: int) -> list[int]:
    path = [last]
    while path[-1] != first:
        path.append(came_from[path[-1]])
    return path[::-1]


def _connected(structure: Structure) -> Iterator[list[int]]:
    """The strongly connected parts of what has no order."""
    search = _Search(structure.children)
    ordered = set(structure.order)
    for start in range(len(structure.nodes)):
        if start not in ordered and start not in search.number:
            yield from search.parts_from(start)


class _Search:
    """Tarjan's algorithm, with a stack of its own: a cycle may be longer than Python's is deep."""

    def __init__(self, children: Sequence[Sequence[int]]) -> None:
        self.number: dict[int, int] = {}
        self._children = children
        self._low: dict[int, int] = {}
        self._open: list[int] = []
        self._is_open: set[int] = set()
        self._work: list[tuple[int, Iterator[int]]] = []

    def parts_from(self, start: int) -> Iterator[list[int]]:
        self._enter(start)
        while self._work:
            at, children = self._work[-1]
            child = next(children, None)
            if child is None:
                yield from self._leave(at)
            elif child not in self.number:
                self._enter(child)
            elif child in self._is_open:
                self._low[at] = min(self._low[at], self.number[child])

    def _enter(self, at: int) -> None:
        self.number[at] = self._low[at] = len(self.number)
        self._open.append(at)
        self._is_open.add(at)
        self._work.append((at, iter(self._children[at])))

    def _leave(self, at: int) -> Iterator[list[int]]:
        self._work.pop()
        if self._work:
            parent = self._work[-1][0]
            self._low[parent] = min(self._low[parent], self._low[at])
        if self._low[at] == self.number[at]:
            yield self._cut_at(at)

    def _cut_at(self, at: int) -> list[int]:
        part: list[int] = []
        while not part or part[-1] != at:
            part.append(self._open.pop())
        self._is_open.difference_update(part)
        return part
