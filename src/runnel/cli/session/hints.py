"""Commands to copy: what a person can type next, for the place that they named."""

import shlex
from dataclasses import dataclass

from runnel.cli.options import StoreLocation
from runnel.settings.variables import hide_password

DEFAULT_LOCATION = StoreLocation()


@dataclass(frozen=True, slots=True)
class CommandHints:
    """`location` is empty when the command line did not name one: then the next need not either.

    On servers (`is_remote`) nothing is resumed: orchestrators take up what is unfinished.
    """

    location: StoreLocation = DEFAULT_LOCATION
    is_remote: bool = False

    def resume(self, execution_id: str = "") -> str:
        """For an execution that no process runs."""
        if self.location.server is not None:
            return "runnel orchestrator"  # next to the server: it is not reached over HTTP
        if self.is_remote:
            return self._format_command("orchestrator")
        return self._format_command("resume", execution_id)

    def watch_again(self, execution_id: str = "") -> str:
        """For somebody who stopped to attend before the end."""
        if self.is_remote:
            return (
                self._format_command("watch", execution_id)
                if execution_id
                else self._format_command("list")
            )
        return self._format_command("resume", execution_id)

    def signal(self, execution_id: str, name: str) -> str:
        return self._format_command("signal", execution_id, name)

    def force_cancel(self, execution_id: str) -> str:
        """For an execution that nobody can go on with."""
        return self._format_command("cancel", execution_id, "--force")

    def rerun(self, execution_id: str) -> str:
        return self._format_command("rerun", execution_id)

    def retry(self, name: str) -> str:
        """For a dead letter."""
        return self._format_command("dlq", "retry", name)

    def show(self, execution_id: str) -> str:
        return self._format_command("show", execution_id)

    def _format_command(self, *words: str) -> str:
        return shlex.join(["runnel", *(word for word in words if word), *self._location_options()])

    def _location_options(self) -> list[str]:
        if self.location.data_dir is not None:
            return ["--data-dir", str(self.location.data_dir)]
        if self.location.server is not None:
            return ["--server", hide_password(self.location.server)]
        if self.location.redis_url is not None:
            return ["--redis-url", hide_password(self.location.redis_url)]
        return []
