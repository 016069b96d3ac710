"""What must not get lost while bodies are traced, whatever their own code does with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from runnel.errors import TraceError

_current: ContextVar["Notes | None"] = ContextVar("notes", default=None)


class Notes:
    """`refused` is the first refusal, which a body may have caught.

    `shown` are the texts that stood for results, as `repr` gives them: a text that holds one was
    made of a result that does not exist yet.
    """

    def __init__(self) -> None:
        self.refused: TraceError | None = None
        self.shown: set[str] = set()


@contextmanager
def noting() -> Iterator[Notes]:
    """A workflow that is traced inside another one shares its notes."""
    notes = _current.get() or Notes()
    token = _current.set(notes)
    try:
        yield notes
    finally:
        _current.reset(token)


def note_refusal(error: TraceError) -> None:
    notes = _current.get()
    if notes is not None and notes.refused is None:
        notes.refused = error


def note_shown(text: str) -> None:
    notes = _current.get()
    if notes is not None:
        notes.shown.add(text)


def shown_in(text: str) -> str | None:
    """What stands for a result in this text; None when nothing does."""
    notes = _current.get()
    return next((each for each in notes.shown if each in text), None) if notes else None
