"""Migrates a database to the newest schema, under a lock and with one transaction per step."""

from pathlib import Path
from typing import Any

from runnel.errors import InputError

_FOLDER = Path(__file__).with_name("migrations")
_NEWEST_SCHEMA = Path(__file__).with_name("schema.sql")
# The only encoding that can store every text of a workflow.
ENCODING = "UTF8"
ENCODING_HINT = (
    "create one with CREATE DATABASE runnel ENCODING 'UTF8' TEMPLATE template0, and set it in "
    "POSTGRES_URL"
)
# The key of the advisory lock: an arbitrary number that every Runnel version must use.
_LOCK_ID = 7_245_001


def load_migrations() -> dict[int, str]:
    """Returns the migrations by number; `0001_initial.sql` has number 1."""
    paths = sorted(_FOLDER.glob("*.sql"))
    return {int(path.name.partition("_")[0]): path.read_text(encoding="utf-8") for path in paths}


def find_migration_version(name: str) -> int:
    """Returns the version of the migration with this name."""
    [path] = _FOLDER.glob(f"*_{name}.sql")
    return int(path.name.partition("_")[0])


async def migrate(connection: Any, schema: str, *, is_stepwise: bool = False) -> int:
    """Migrates the schema and returns its version.

    A database without a version gets the newest schema at once, unless `is_stepwise`. Raises
    InputError for a schema of a later Runnel, and for an encoding that can't store every text.
    """
    name = quote_identifier(schema)
    steps = load_migrations()
    await _check_encoding(connection)
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK_ID)
    try:
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {name}.versions ("
            "version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        current = await connection.fetchval(f"SELECT max(version) FROM {name}.versions") or 0  # noqa: S608  # quoted
        if current > max(steps):
            raise InputError(
                f"the archive has schema version {current}, this Runnel knows up to {max(steps)}: "
                "upgrade Runnel"
            )
        if current == 0 and not is_stepwise:
            await _apply(
                connection, name, _NEWEST_SCHEMA.read_text(encoding="utf-8"), sorted(steps)
            )
            return max(steps)
        for version in sorted(steps):
            if version > current:
                await _apply(connection, name, steps[version], [version])
        return max(steps)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK_ID)


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


async def _check_encoding(connection: Any) -> None:
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != ENCODING:
        raise InputError(
            f"the archive's database is encoded in {encoding}, expected {ENCODING}: {ENCODING_HINT}"
        )


async def _apply(connection: Any, name: str, text: str, versions: list[int]) -> None:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL search_path TO {name}")
        await connection.execute(text)
        await connection.executemany(
            f"INSERT INTO {name}.versions (version) VALUES ($1)",  # noqa: S608  # quoted
            [(version,) for version in versions],
        )
