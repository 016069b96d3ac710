"""A process for each life: forked, so that starting one costs milliseconds.

Only from a process without threads and without an event loop: a fork copies neither.
"""

import os
import signal
import traceback
from collections.abc import Callable
from typing import NoReturn

from runnel.testing.crash_points.diary import About, Diary

ENDED = 0
BROKEN = 1


def in_child(live: Callable[[], None], diary: Diary, *, deadline_s: float) -> int:
    """Its exit code: ENDED, BROKEN, what it chose; or minus the signal that ended it.

    After `deadline_s` that is SIGALRM. What it raised is noted as a warning.
    """
    pid = os.fork()
    if pid == 0:
        _live(live, diary, deadline_s)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _live(live: Callable[[], None], diary: Diary, deadline_s: float) -> NoReturn:
    code = BROKEN
    try:
        signal.setitimer(signal.ITIMER_REAL, deadline_s)
        live()
        code = ENDED
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        diary.note(About.WARNINGS, traceback.format_exc())
    finally:
        os._exit(code)
