"""Writes what a batch of commits became, inside a transaction."""

from collections.abc import Sequence

from runnel.backends.postgres.database import Connection
from runnel.backends.postgres.projection import Projection
from runnel.backends.postgres.queries import SQL
from runnel.backends.postgres.rows import columns

_LOG_COLUMNS = ("partition", "sequence", "ordinal", "aggregate_id", "entry")
_LETTER_COLUMNS = (
    "partition",
    "sequence",
    "ordinal",
    "execution_id",
    "queue",
    "rejected_at",
    "body",
)


async def write_batch(connection: Connection, batch: Projection) -> None:
    if batch.audit_log:
        await connection.copy_records_to_table(
            "audit_log", records=batch.audit_log, columns=_LOG_COLUMNS
        )
    if batch.headers:
        await write_headers(connection, list(batch.headers.values()))
    if batch.nodes:
        await connection.copy_records_to_table("staged_nodes", records=batch.node_rows())
        await connection.execute(SQL["put_nodes"])
    if batch.closed:
        await connection.execute(SQL["close_limits"], list(batch.closed))
    if batch.limit_logs:
        await connection.copy_records_to_table(
            "limit_log", records=batch.limit_rows(), columns=_LOG_COLUMNS
        )
    if batch.letters:
        await connection.copy_records_to_table(
            "dead_letters", records=batch.letters, columns=_LETTER_COLUMNS
        )
    await write_applied(connection, batch)


async def write_headers(connection: Connection, headers: Sequence[Sequence[object]]) -> None:
    await connection.copy_records_to_table("staged_headers", records=headers)
    await connection.execute(SQL["put_headers"])


async def write_applied(connection: Connection, batch: Projection) -> None:
    """What callers asked for and has had its effect."""
    if batch.applied:
        await connection.execute(SQL["apply_commands"], *columns(list(batch.applied), 3))
    if batch.ended:
        await connection.execute(SQL["apply_all_commands"], list(batch.ended))


async def clear_staged(connection: Connection) -> None:
    """For another batch in the same transaction."""
    await connection.execute(SQL["clear_staged_headers"])
    await connection.execute(SQL["clear_staged_nodes"])
