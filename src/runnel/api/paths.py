"""Where in a workflow document a problem is: its sentence begins with it."""

import re
from collections.abc import Sequence

# `nodes[2].retry: expected …`, as the reader of documents writes it.
_PLACE = re.compile(r"(?P<path>[A-Za-z_][\w]*(?:\.\w+|\[[^\]]*\])*): (?P<message>.*)", re.DOTALL)
# `node 'b': …`, as the judge of graphs writes it.
_NODE = re.compile(r"node '(?P<id>[^']+)'(?P<rest>.*)", re.DOTALL)


def located(problems: Sequence[str]) -> list[tuple[str, str]]:
    """A JSON path and a sentence for each; `$` where the whole document is meant."""
    return [*map(_located, problems)]


def _located(problem: str) -> tuple[str, str]:
    node = _NODE.match(problem)
    if node is not None:
        return f"$.nodes[?@.id=='{node['id']}']", problem
    place = _PLACE.match(problem)
    if place is not None:
        return f"$.{place['path']}", place["message"]
    return "$", problem
