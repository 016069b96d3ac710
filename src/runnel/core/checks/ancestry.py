"""Answers, for many pairs at once, whether one node is upstream of another."""

from collections.abc import Iterable, Iterator

from runnel.core.checks.structure import Structure

# So many targets are followed at once, one bit each: 100,000 nodes take 25 MB at most.
BATCH = 2_048


def not_upstream(
    structure: Structure, pairs: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """The pairs (node, target) whose target is not an ancestor of the node.

    A node without a place in the order (on or behind a cycle) gets no answer. One pass over the
    part of the order that matters serves a whole batch, so that even 100,000 nodes that each refer
    to another distant one take seconds, where a search for each would take hours.
    """
    place = {at: position for position, at in enumerate(structure.order)}
    asked: dict[int, list[int]] = {}
    for node, target in pairs:
        if node in place and target in place:
            asked.setdefault(target, []).append(node)
    targets = sorted(asked, key=place.__getitem__)
    for start in range(0, len(targets), BATCH):
        batch = targets[start : start + BATCH]
        last = max(place[node] for target in batch for node in asked[target])
        above = _targets_above(structure, batch, structure.order[place[batch[0]] : last + 1])
        for bit, target in enumerate(batch):
            for node in asked[target]:
                if not above.get(node, 0) >> bit & 1:
                    yield node, target


def _targets_above(structure: Structure, batch: list[int], order: list[int]) -> dict[int, int]:
    """For each node the bits of those targets that are upstream of it, or that it is itself."""
    found = {target: 1 << bit for bit, target in enumerate(batch)}
    for at in order:
        bits = found.get(at, 0)
        for parent in structure.parents[at]:
            bits |= found.get(parent, 0)
        if bits:
            found[at] = bits
    return found
