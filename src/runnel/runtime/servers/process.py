"""One server process: started with a guardian, signalled with all its children, always reaped."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from runnel.runtime.servers import guardian


class ServerProcess:
    """Ends with this process at the latest; `folder` is then removed by its guardian."""

    def __init__(
        self,
        command: list[str],
        *,
        folder: Path,
        log: Path,
        user: str | None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        theirs, ours = os.pipe()
        self._lifeline = os.fdopen(ours, "wb", buffering=0)
        try:
            with os.fdopen(theirs, "rb") as lifeline, log.open("wb") as output:
                self._popen = subprocess.Popen(  # noqa: S603  # a server that was looked for, no shell
                    [
                        *(sys.executable, "-I", "-S", guardian.__file__),
                        *(str(folder), user or "", *command),
                    ],
                    stdin=lifeline,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # English messages: a port that is taken is recognised by them.
                    env={**(os.environ if environ is None else environ), "LC_ALL": "C"},
                    # Ctrl-C at a terminal is for us, who then decide about the server; and the
                    # guardian learns the server's pid from its session.
                    start_new_session=True,
                )
        except BaseException:
            self._lifeline.close()
            raise

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self.ends_within(0)

    @property
    def exit_code(self) -> int | None:
        return self._popen.returncode

    def ends_within(self, seconds: float) -> bool:
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._let_guardian_go()
        return True

    def ask_to_end(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def pause(self) -> None:
        if not self.has_ended:
            guardian.stopped_family(self.pid)

    def resume(self) -> None:
        if not self.has_ended:
            for pid in (*guardian.children_of(self.pid), self.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        if not self.has_ended:
            guardian.kill_family(self.pid)
            self._popen.wait()
        self._let_guardian_go()

    def _let_guardian_go(self) -> None:
        if not self._lifeline.closed:
            with suppress(BrokenPipeError):
                self._lifeline.write(b".")
            self._lifeline.close()
