"""Commands to copy: what a person can type next, for the data directory that they named."""

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Hints:
    """`data_dir` is None when the command line did not name one: then the next need not either."""

    data_dir: Path | None = None

    def resume(self, execution_id: str = "") -> str:
        return self._command("resume", execution_id)

    def signal(self, execution_id: str, name: str) -> str:
        return self._command("signal", execution_id, name)

    def show(self, execution_id: str) -> str:
        return self._command("show", execution_id)

    def _command(self, *words: str) -> str:
        where = [] if self.data_dir is None else ["--data-dir", str(self.data_dir)]
        return shlex.join(["runnel", *(word for word in words if word), *where])
