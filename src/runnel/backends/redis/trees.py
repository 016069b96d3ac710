"""The executions below a root, found by their names."""

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines

PAGE = 500


async def children_of(lines: Lines, keys: Keys, root: bytes) -> list[bytes]:
    """By id: a parent comes before its children."""
    found: list[bytes] = []
    first = b"[" + root + b"."
    while True:
        page = await lines.call(
            "ZRANGEBYLEX", keys.ids, first, b"(" + root + b"/", "LIMIT", 0, PAGE
        )
        found += page
        if len(page) < PAGE:
            return found
        first = b"(" + page[-1]
