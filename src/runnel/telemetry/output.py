"""Where the log lines of a process go: to stderr, in one of two forms."""

import logging
import sys
from collections.abc import Iterable
from typing import Literal

from runnel.telemetry.lines import HumanLine, JsonLine
from runnel.telemetry.redaction import Hide, Redactor


def write_logs(
    *,
    format_: Literal["auto", "human", "json"],
    level: str,
    secrets: Iterable[str] = (),
    hide: Hide | None = None,
    about: dict[str, str] | None = None,
) -> None:
    """All loggers of this process, user code's too; `auto` is human on a terminal, else JSON.

    No line shows `secrets`, nor what `hide` takes out; `about` says in each JSON line which process
    it is.
    """
    logging.raiseExceptions = False  # a closed stderr is no reason to fail
    is_human = format_ == "human" or (format_ == "auto" and sys.stderr.isatty())
    redactor = Redactor(secrets, hide=hide)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(HumanLine(redactor) if is_human else JsonLine(redactor, about or {}))
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
