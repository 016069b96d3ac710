"""The archive of the floor. It writes the same rows as the engine, with the same statements."""

from collections.abc import Sequence
from typing import Any

import msgspec

from bench.floors.redis_connection import FloorConfig, FloorConnection, open_connection
from runnel.backends.postgres.database import SQL, PostgresDatabase, PostgresOptions
from runnel.backends.postgres.projection import build_header_row
from runnel.core.codec import decode_entry, encode_message
from runnel.core.commands import CreateExecution
from runnel.core.events import NodeCompleted, NodeQueued
from runnel.core.ids import NO_ITEM
from runnel.core.states import ExecutionState, NodeState
from runnel.engine.clock import RealClock
from runnel.ports.store import ExecutionHeader

PARTITION = 0
# As in the archiver of the engine.
COMMITS_MAX = 100
FLUSH_S = 0.5
_LOG_COLUMNS = ("partition", "sequence", "ordinal", "aggregate_id", "entry")
_EXECUTION_COLUMNS = (
    *("id", "partition", "is_root", "workflow", "version", "definition", "state", "created_at"),
    "labels",
)
_COMMAND_COLUMNS = ("partition", "execution_id", "kind", "key", "body")

_header_decoder = msgspec.json.Decoder(ExecutionHeader)


async def open_database(config: FloorConfig) -> PostgresDatabase:
    database = await PostgresDatabase.open(
        config.postgres_url or "", PostgresOptions(schema=config.name)
    )
    await database.prepare()
    return database


async def record_commands(database: PostgresDatabase, commands: Sequence[CreateExecution]) -> None:
    """Records the commands before the caller gets its answer."""
    executions = [
        (
            *(
                command.execution_id,
                PARTITION,
                True,
                command.workflow,
                command.version,
                command.definition,
            ),
            *(ExecutionState.PENDING.value, command.created_at, "{}"),
        )
        for command in commands
    ]
    rows = [
        (PARTITION, command.execution_id, CreateExecution.__name__, "", encode_message(command))
        for command in commands
    ]
    async with database.transaction() as connection:
        await connection.copy_records_to_table(
            "executions", records=executions, columns=_EXECUTION_COLUMNS
        )
        await connection.copy_records_to_table("commands", records=rows, columns=_COMMAND_COLUMNS)


async def run_archiver(config: FloorConfig) -> None:
    """Archives the journal until it is cancelled."""
    database = await open_database(config)
    async with open_connection(config.redis_url) as connection:
        await _archive_journal(connection, database, config.keys.journal)


async def _archive_journal(
    redis_connection: FloorConnection, database: PostgresDatabase, key: str
) -> None:
    clock, after = RealClock(), 0
    while True:
        commits = await redis_connection.call(
            "XRANGE", key, f"{after + 1}-0", "+", "COUNT", COMMITS_MAX
        )
        if commits:
            rows = _ArchiveRows()
            for entry_id, fields in commits:
                after = int(entry_id.partition(b"-")[0])
                rows.add(after, fields)
            async with database.transaction() as connection:
                await rows.write(connection)
            await redis_connection.call("XTRIM", key, "MINID", "=", f"{after + 1}-0")
        if len(commits) < COMMITS_MAX:
            await clock.sleep(FLUSH_S)


class _ArchiveRows:
    def __init__(self) -> None:
        self._log: list[tuple[object, ...]] = []
        self._headers: list[tuple[object, ...]] = []
        self._ended: list[str] = []
        self._nodes: dict[tuple[str, str], list[object]] = {}

    def add(self, sequence: int, fields: Sequence[bytes]) -> None:
        for ordinal, (name, value) in enumerate(zip(fields[::2], fields[1::2], strict=True)):
            if name == b"x":
                header = _header_decoder.decode(value)
                self._headers.append(build_header_row(PARTITION, header))
                self._ended.append(header.execution_id)
            else:
                id_ = name[1:].decode()
                self._log.append((PARTITION, sequence, ordinal, id_, value))
                self._apply_entry(id_, value)

    def _apply_entry(self, execution_id: str, data: bytes) -> None:
        entry = decode_entry(data)
        for event in entry.events:
            if type(event) is NodeQueued:
                row = [NodeState.QUEUED.value, 1, None, entry.at, None, None, None]
                self._nodes[execution_id, event.node] = row
            elif type(event) is NodeCompleted:
                queued_row = self._nodes.get((execution_id, event.node))
                queued_at = None if queued_row is None else queued_row[3]
                row = [NodeState.COMPLETED.value, 1, event.worker, queued_at]
                row += [event.started_at, entry.at, None]
                self._nodes[execution_id, event.node] = row

    async def write(self, connection: Any) -> None:
        await connection.copy_records_to_table("audit_log", records=self._log, columns=_LOG_COLUMNS)
        if self._headers:
            await connection.copy_records_to_table("staged_headers", records=self._headers)
            await connection.execute(SQL["put_headers"])
            await connection.execute(SQL["apply_all_commands"], self._ended)
        nodes = [(*key, NO_ITEM, *row) for key, row in self._nodes.items()]
        await connection.copy_records_to_table("staged_nodes", records=nodes)
        await connection.execute(SQL["put_nodes"])
