"""Steps of a path."""

from urllib.parse import quote

_DOTS = frozenset({".", ".."})


def step(text: str) -> str:
    """One step, whatever is in it; half a surrogate pair is in no name that a server knows.

    Dots are quoted where they would mean this step or the one above: to cancel the execution '.'
    was to cancel many.
    """
    quoted = quote(text.encode(errors="replace"), safe="")
    return quoted.replace(".", "%2E") if text in _DOTS else quoted
