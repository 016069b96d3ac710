"""How loud each event is.

What somebody must look at is a warning, what will not be right by itself an error.
"""

import logging
from collections.abc import Mapping

from runnel.ports import telemetry as names

_LOUDEST = (names.ARCHIVE_SET_ASIDE, names.ARCHIVE_FENCED, names.ARCHIVE_GAP)
_LOUD = (
    names.COMMAND_POISONED,
    names.MESSAGE_UNREADABLE,
    names.PARTITION_LOST,
    names.STORE_FAILED,
    names.THREAD_ABANDONED,
    names.ARCHIVE_LATE,
    names.WORKER_DEAD,
    names.ORCHESTRATOR_DEAD,
    names.TASKS_UNSERVED,
    names.WORKERS_MISSING,
    names.EXECUTION_REPAIRED,
    names.INBOX_STALE,
    names.EXECUTION_FAILED,
    names.SETTING_UNKNOWN,
    names.SCHEDULE_MISSED,
    names.SCHEDULE_FAILED,
)
_QUIET = (
    names.TASK_STARTED,
    names.TASK_LOST,
    names.REPORT_REFUSED,
    names.HANDLER_METRIC,
    names.NODE_SETTLED,
    names.EXECUTION_STARTED,
)
LEVELS: Mapping[str, int] = {
    **dict.fromkeys(_LOUDEST, logging.ERROR),
    **dict.fromkeys(_LOUD, logging.WARNING),
    **dict.fromkeys(_QUIET, logging.DEBUG),
}


def level_of(name: str) -> int:
    return LEVELS.get(name, logging.INFO)
