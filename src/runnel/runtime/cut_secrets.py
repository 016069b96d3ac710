"""Secrets of which a text has only a part, because it was cut: messages are, at an ellipsis."""

from collections import defaultdict
from collections.abc import Iterable

from runnel.telemetry.redaction import HIDDEN

CUT = "…"
# As much of a secret as gives it away: half of a short one, or this many characters.
PART_CHARS_MIN = 4
PART_CHARS_MAX = 8


class CutSecrets:
    """`shapes` are the forms of whole secrets, which have been hidden already."""

    def __init__(self, shapes: Iterable[str]) -> None:
        self._by_head: dict[str, list[str]] = defaultdict(list)
        self._by_tail: dict[str, list[str]] = defaultdict(list)
        self._chars_max = 0
        for shape in {each for each in shapes if len(each) > PART_CHARS_MIN}:
            self._by_head[shape[:PART_CHARS_MIN]].append(shape)
            self._by_tail[shape[-PART_CHARS_MIN:]].append(shape)
            self._chars_max = max(self._chars_max, len(shape))

    def hide(self, text: str) -> str:
        if CUT not in text or not self._chars_max:
            return text
        first, *others = text.split(CUT)
        pieces = [first, *map(self._without_tail, others)]
        return CUT.join([*map(self._without_head, pieces[:-1]), pieces[-1]])

    def _without_head(self, piece: str) -> str:
        """A piece that ends where a secret was cut off: without its beginning."""
        first = max(0, len(piece) - self._chars_max)
        for start in range(first, len(piece) - PART_CHARS_MIN + 1):
            rest = piece[start:]
            for shape in self._by_head.get(rest[:PART_CHARS_MIN], ()):
                if len(rest) >= _least(shape) and shape.startswith(rest):
                    return piece[:start] + HIDDEN
        return piece

    def _without_tail(self, piece: str) -> str:
        """A piece that begins where a secret was cut off: without its end."""
        for end in range(min(len(piece), self._chars_max), PART_CHARS_MIN - 1, -1):
            begin = piece[:end]
            for shape in self._by_tail.get(begin[-PART_CHARS_MIN:], ()):
                if len(begin) >= _least(shape) and shape.endswith(begin):
                    return HIDDEN + piece[end:]
        return piece


def _least(shape: str) -> int:
    return max(PART_CHARS_MIN, min(PART_CHARS_MAX, len(shape) // 2))
