"""A data directory that can't be used is refused with one sentence that names the reason."""

import os
import sqlite3
from pathlib import Path

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import SQL
from runnel.errors import InputError, StoreError
from runnel.testing.clock import FakeClock, FakeIds

SOURCE = Path(__file__).parents[2] / "src" / "runnel" / "backends" / "sqlite"


async def test_a_missing_folder_is_created(tmp_path: Path) -> None:
    backend = await open_at(tmp_path / "a" / "b")
    await backend.close()

    assert (tmp_path / "a" / "b" / "runnel.db").exists()


async def test_closing_twice_is_not_an_error(tmp_path: Path) -> None:
    backend = await open_at(tmp_path)

    await backend.close()
    await backend.close()

    with pytest.raises(StoreError, match="is closed"):
        await backend.claim_home_partition("one")


async def test_a_file_instead_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    for folder in (tmp_path / "data", tmp_path / "data" / "below"):
        with pytest.raises(InputError, match="is a file, expected a folder"):
            await open_at(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_is_not_writable_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(InputError, match="not writable"):
        await open_at(tmp_path)


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runnel.db").write_bytes(b"no database at all" * 100)

    with pytest.raises(StoreError, match="damaged or not a SQLite database"):
        await open_at(tmp_path)


SHAPE = """
SELECT held.name, part.name, part.type FROM sqlite_schema AS held
JOIN pragma_table_xinfo(held.name) AS part ORDER BY held.name, part.cid
"""


async def test_a_database_of_an_earlier_version_is_upgraded(tmp_path: Path) -> None:
    await (await open_at(tmp_path)).close()
    with sqlite3.connect(tmp_path / "runnel.db") as db:
        fresh = db.execute(SHAPE).fetchall()
        for name in ("by_workflow", "by_rerun", "finished"):
            db.execute(f"DROP INDEX executions_{name}")
        db.execute("ALTER TABLE partitions DROP COLUMN submitter")
        db.execute("ALTER TABLE executions DROP COLUMN rerun_of")
        db.execute("DROP TABLE results")
        db.execute("DROP TABLE records")
        db.execute("DROP TABLE feed")
        db.execute("DROP INDEX dead_letters_by_execution")
        db.execute("PRAGMA user_version = 1")
    db.close()

    await (await open_at(tmp_path)).close()

    with sqlite3.connect(tmp_path / "runnel.db") as db:
        upgraded = db.execute(SHAPE).fetchall()
        assert db.execute("PRAGMA user_version").fetchone() == (6,)
    db.close()
    assert upgraded == fresh


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    await (await open_at(tmp_path)).close()
    with sqlite3.connect(tmp_path / "runnel.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()

    with pytest.raises(StoreError, match="schema version 99, this Runnel knows up to 6: upgrade"):
        await open_at(tmp_path)


@pytest.mark.parametrize("part", ["SqliteReader", "WakeupSender"])
async def test_a_backend_that_could_not_be_opened_completely_is_closed(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreError("too many open files")

    monkeypatch.setattr(f"runnel.backends.sqlite.backend.{part}", refuse)

    with pytest.raises(StoreError, match="too many open files"):
        await open_at(tmp_path)

    assert handles_in(tmp_path) == []


def handles_in(folder: Path) -> list[str]:
    """Returns the files below the folder that this process has open."""
    targets = [str(link.resolve()) for link in Path("/proc/self/fd").iterdir()]
    return [target for target in targets if target.startswith(str(folder))]


def test_every_query_is_used_and_every_used_query_exists() -> None:
    text = "".join(path.read_text() for path in SOURCE.glob("*.py"))
    used = {name for name in SQL if f'"{name}"' in text}

    assert sorted(used) == sorted(SQL)
    assert (SOURCE / "queries.sql").read_text().count(";\n") == len(SQL)


async def open_at(folder: Path) -> SqliteBackend:
    return await SqliteBackend.open(folder, clock=FakeClock(), ids=FakeIds())
