"""What all mailboxes share: the partition that a command goes to, and the error for a creation
whose workflow was deleted.
"""

import zlib

from runnel.core.commands import LIMIT_PREFIX, CreateExecution
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.wording import escape_unprintable
from runnel.errors import NotFoundError


def route_by_hash(aggregate_id: str, partitions: int) -> int:
    """The same in every process and version: a tree of children lives with its root."""
    is_limit = aggregate_id.startswith(LIMIT_PREFIX)
    key = aggregate_id if is_limit else get_root_id(ExecutionId(aggregate_id))
    return zlib.crc32(key.encode()) % partitions


def build_definition_deleted_error(command: CreateExecution) -> NotFoundError:
    return NotFoundError(
        f"version {command.version} of workflow",
        escape_unprintable(command.workflow),
        hint="it was deleted in this very moment",
    )
