"""Secrets of which a text has only a part, because it was cut: messages are, at an ellipsis."""

import re
from collections.abc import Iterable

from runnel.telemetry.redaction import HIDDEN

CUT = "…"
# As much of a secret as gives it away: half of a short one, or this many characters.
PART_CHARS_MIN = 4
PART_CHARS_MAX = 8


class CutSecrets:
    """`shapes` are the forms of whole secrets, which have been hidden already."""

    def __init__(self, shapes: Iterable[str]) -> None:
        self._shapes = sorted({each for each in shapes if len(each) > PART_CHARS_MIN})
        self._chars_max = max(map(len, self._shapes), default=0)
        self._heads = _any_of(shape[: _least(shape)] for shape in self._shapes)
        self._tails = _any_of(shape[-_least(shape) :] for shape in self._shapes)

    def hide(self, text: str) -> str:
        if CUT not in text or not self._shapes:
            return text
        first, *others = text.split(CUT)
        pieces = [first, *map(self._without_tail, others)]
        return CUT.join([*map(self._without_head, pieces[:-1]), pieces[-1]])

    def _without_head(self, piece: str) -> str:
        """A piece that ends where a secret was cut off: without its beginning."""
        if len(piece) < PART_CHARS_MIN:
            return piece
        for found in self._heads.finditer(piece, max(0, len(piece) - self._chars_max)):
            rest = piece[found.start() :]
            if any(shape.startswith(rest) for shape in self._shapes):
                return piece[: found.start()] + HIDDEN
        return piece

    def _without_tail(self, piece: str) -> str:
        """A piece that begins where a secret was cut off: without its end."""
        if len(piece) < PART_CHARS_MIN:
            return piece
        whole = 0
        for found in self._tails.finditer(piece, 0, self._chars_max):
            end = found.end(1)
            if any(shape.endswith(piece[:end]) for shape in self._shapes):
                whole = end
        return HIDDEN + piece[whole:] if whole else piece


def _least(shape: str) -> int:
    return max(PART_CHARS_MIN, min(PART_CHARS_MAX, len(shape) // 2))


def _any_of(parts: Iterable[str]) -> re.Pattern[str]:
    """Finds every place, also one inside of another."""
    return re.compile(f"(?=({'|'.join(map(re.escape, sorted(set(parts), key=len)))}))")
