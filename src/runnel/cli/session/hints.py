"""Commands that a sentence suggests to the user, for the place that the command line named."""

import shlex
from dataclasses import dataclass

from runnel.cli.options import StoreLocation
from runnel.settings.variables import hide_password

DEFAULT_LOCATION = StoreLocation()


@dataclass(frozen=True, slots=True)
class CommandHints:
    """Writes commands that the user can copy.

    An empty `location` adds no options: the next command finds the place as this one did. On
    servers (`is_remote`) nothing is resumed, because orchestrators continue the executions.
    """

    location: StoreLocation = DEFAULT_LOCATION
    is_remote: bool = False

    def resume(self, execution_id: str = "") -> str:
        """Returns the command that continues an execution that no process runs."""
        if self.location.server is not None:
            return "runnel orchestrator"  # runs next to the server: it can't work over HTTP
        if self.is_remote:
            return self._format_command("orchestrator")
        return self._format_command("resume", execution_id)

    def watch_again(self, execution_id: str = "") -> str:
        """Returns the command for a user who stopped following before the end."""
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
        """Returns the command for an execution that no process can continue."""
        return self._format_command("cancel", execution_id, "--force")

    def rerun(self, execution_id: str) -> str:
        return self._format_command("rerun", execution_id)

    def retry(self, name: str) -> str:
        """Returns the command that retries a dead letter."""
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
