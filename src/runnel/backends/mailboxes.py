"""Functions that all mailboxes share.

The functions compute the partition of a command, and build the error for an execution of a deleted
workflow.
"""

import zlib

from runnel.core.commands import LIMIT_PREFIX, CreateExecution
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.message_text import escape_unprintable
from runnel.errors import NotFoundError


def route_by_hash(aggregate_id: str, partitions: int) -> int:
    """Returns the partition of an execution or concurrency key.

    The result is the same in every process and in every version of Runnel. A child execution is in
    the partition of its root execution.
    """
    is_limit = aggregate_id.startswith(LIMIT_PREFIX)
    key = aggregate_id if is_limit else get_root_id(ExecutionId(aggregate_id))
    return zlib.crc32(key.encode()) % partitions


def build_definition_deleted_error(command: CreateExecution) -> NotFoundError:
    return NotFoundError(
        f"version {command.version} of workflow",
        escape_unprintable(command.workflow),
        hint="it was deleted while this request was processed",
    )
