"""Log lines of user code and warnings of the engine, on stderr and above the live view."""

import logging
import sys
from collections.abc import Callable

HANDLER_LOGGER = "runnel.handler"


def show_logs(hide: Callable[[str], str]) -> None:
    """Info and more from `ctx.logger`, warnings from everything else; `hide` takes secrets out."""
    logging.raiseExceptions = False  # a closed stderr is no reason to fail
    logging.getLogger().addHandler(_Stderr(hide))
    logging.getLogger(HANDLER_LOGGER).setLevel(logging.INFO)


class _Stderr(logging.Handler):
    """Looks stderr up for each line: while a live view is open, it is another one.

    An event that repeats itself, as a store that does not answer, is told once.
    """

    def __init__(self, hide: Callable[[str], str]) -> None:
        super().__init__()
        self._hide = hide
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        node = getattr(record, "node_id", None)
        fields: dict[str, object] = getattr(record, "fields", {})
        words = [self.format(record), *(f"{key}={fields[key]}" for key in fields)]
        told = self._hide(" ".join(words))
        prefix = record.levelname.lower() if node is None else f"{node}: {record.levelname.lower()}"
        is_repeated = told == self._last and hasattr(record, "event")
        self._last = told
        if is_repeated:
            return
        try:
            print(f"{prefix}: {told}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self.handleError(record)
