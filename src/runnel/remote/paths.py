"""Steps of a path."""

from urllib.parse import quote


def step(text: str) -> str:
    """One step, whatever is in it; half a surrogate pair is in no name that a server knows."""
    return quote(text.encode(errors="replace"), safe="")
