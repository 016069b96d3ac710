"""What a store says to whoever begins an execution of a workflow that is gone by then."""

from runnel.core.checks.wording import printable
from runnel.core.commands import CreateExecution
from runnel.errors import NotFoundError


def no_longer_stored(command: CreateExecution) -> NotFoundError:
    return NotFoundError(
        f"version {command.version} of workflow",
        printable(command.workflow),
        hint="it was deleted in this very moment",
    )
