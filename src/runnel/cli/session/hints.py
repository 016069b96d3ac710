"""Commands to copy: what a person can type next, for the place that they named."""

import shlex
from dataclasses import dataclass

from runnel.cli.options import Place

NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class Hints:
    """`place` is empty when the command line did not name one: then the next need not either.

    On servers (`is_remote`) nothing is resumed: orchestrators take up what is unfinished.
    """

    place: Place = NOWHERE
    is_remote: bool = False

    def revive(self, execution_id: str = "") -> str:
        """For an execution that no process runs."""
        if self.place.server is not None:
            return "runnel orchestrator"  # next to the server: it is not reached over HTTP
        if self.is_remote:
            return self._command("orchestrator")
        return self._command("resume", execution_id)

    def return_to(self, execution_id: str = "") -> str:
        """For somebody who stopped to attend before the end."""
        if self.is_remote:
            return self._command("watch", execution_id) if execution_id else self._command("list")
        return self._command("resume", execution_id)

    def signal(self, execution_id: str, name: str) -> str:
        return self._command("signal", execution_id, name)

    def end(self, execution_id: str) -> str:
        """For an execution that nobody can go on with."""
        return self._command("cancel", execution_id, "--force")

    def rerun(self, execution_id: str) -> str:
        return self._command("rerun", execution_id)

    def retry(self, name: str) -> str:
        """For a dead letter."""
        return self._command("dlq", "retry", name)

    def show(self, execution_id: str) -> str:
        return self._command("show", execution_id)

    def _command(self, *words: str) -> str:
        return shlex.join(["runnel", *(word for word in words if word), *self._where()])

    def _where(self) -> list[str]:
        if self.place.data_dir is not None:
            return ["--data-dir", str(self.place.data_dir)]
        if self.place.server is not None:
            from runnel.settings.variables import without_password

            return ["--server", without_password(self.place.server)]
        if self.place.redis_url is not None:
            from runnel.settings.variables import without_password

            return ["--redis-url", without_password(self.place.redis_url)]
        return []
