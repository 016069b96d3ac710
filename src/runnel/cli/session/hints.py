"""Formats the commands that messages suggest, with the location options of this command."""

import shlex
from dataclasses import dataclass

from runnel.cli.options import StoreLocation
from runnel.settings.variables import hide_password

DEFAULT_LOCATION = StoreLocation()


@dataclass(frozen=True, slots=True)
class CommandHints:
    """Formats commands that the user can copy.

    An empty `location` adds no options: the suggested command reads the same environment. With
    servers (`is_remote`), `resume` is not suggested, because orchestrators continue executions.
    """

    location: StoreLocation = DEFAULT_LOCATION
    is_remote: bool = False

    def resume(self, execution_id: str = "") -> str:
        """Returns the command that continues an execution which no process runs."""
        if self.location.server is not None:
            return (
                "runnel orchestrator"  # an orchestrator needs the Redis URL, not the HTTP address
            )
        if self.is_remote:
            return self._format_command("orchestrator")
        return self._format_command("resume", execution_id)

    def watch_again(self, execution_id: str = "") -> str:
        """Returns the command that follows an unfinished execution again after an interruption."""
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
        """Returns the command that ends an execution which no process can continue."""
        return self._format_command("cancel", execution_id, "--force")

    def rerun(self, execution_id: str, *, is_whole: bool = False) -> str:
        return self._format_command("rerun", execution_id, "--all" if is_whole else "")

    def retry(self, name: str) -> str:
        """Returns the command that retries a dead letter."""
        return self._format_command("dlq", "retry", name)

    def show(self, execution_id: str) -> str:
        return self._format_command("show", execution_id)

    def _format_command(self, *arguments: str) -> str:
        given = [argument for argument in arguments if argument]
        return shlex.join(["runnel", *given, *self._location_options()])

    def _location_options(self) -> list[str]:
        if self.location.data_dir is not None:
            return ["--data-dir", str(self.location.data_dir)]
        if self.location.server is not None:
            return ["--server", hide_password(self.location.server)]
        if self.location.redis_url is not None:
            return ["--redis-url", hide_password(self.location.redis_url)]
        return []
