"""How each state looks: one glyph and one colour, the same in every command."""

from collections.abc import Mapping
from typing import NamedTuple


class Look(NamedTuple):
    glyph: str
    style: str


LOOKS: Mapping[str, Look] = {
    "PENDING": Look("·", "dim"),
    "QUEUED": Look("◌", "cyan"),
    "RUNNING": Look("●", "bold blue"),
    "WAITING": Look("◔", "yellow"),
    "COMPLETED": Look("✓", "green"),
    "FAILED": Look("✗", "bold red"),
    "SKIPPED": Look("↷", "dim"),
    "CANCELLED": Look("■", "magenta"),
}
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
# For terminals and files that can't hold the glyphs above.
ASCII = {"·": ".", "◌": "o", "●": "*", "◔": "~", "✓": "+", "✗": "x", "↷": ">", "■": "#"}
