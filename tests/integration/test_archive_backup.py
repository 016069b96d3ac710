"""PostgreSQL restored from an older backup: the error is reported, and emptying Redis repairs
it.
"""

import asyncio
import shutil
from pathlib import Path

import pytest

from runnel.app.doctor import Verdict, examine
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.notify.event_bus import EventBus
from runnel.ports.telemetry import ARCHIVE_GAP
from runnel.settings.model import Settings
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler
from tests.redis_postgres import open_archived_engine
from tests.redis_server import flush_server

SCHEMA = "backed up"
CHAIN = make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))


def copy(server: PostgresServer, to: Path) -> None:
    server.stop()
    shutil.copytree(server.folder / "data", to)
    server.start()


def restore(server: PostgresServer, backup: Path) -> None:
    server.stop()
    data = server.folder / "data"
    owner = data.stat()
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    for path in (data, *data.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    server.start()


async def test_a_restored_backup_is_detected_and_redis_is_restored_from_it(
    own_redis: RedisServer,
    own_postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[str] = []
    gap = asyncio.Event()

    def record_error(_hub: EventBus, name: str, **fields: object) -> None:
        if name == ARCHIVE_GAP:
            errors.append(str(fields["error"]))
            gap.set()

    monkeypatch.setattr(EventBus, "event", record_error)
    settings = Settings(
        redis_url=own_redis.url, postgres_url=own_postgres.url, postgres_schema=SCHEMA
    )
    work = WorkHandler()
    gate = work.gate("b")
    backup = tmp_path / "backup"
    async with open_archived_engine(
        own_redis, own_postgres, work, schema=SCHEMA, alarm_s=0.1
    ) as running:
        [waiting] = await running.submit_all([CHAIN])
        await work.entered["b"].wait()
        await running.archive_all()
        await asyncio.to_thread(copy, own_postgres, backup)
        gate.set()
        await running.ends([waiting, *await running.submit_all([CHAIN] * 8)])
        await running.archive_all()

        await asyncio.to_thread(restore, own_postgres, backup)

        since = await running.submit_all([CHAIN] * 8)
        async with asyncio.timeout(DEADLINE_S):
            await gap.wait()
        findings = await examine(settings, RealClock(), RandomIdGenerator())
    assert "empty this Redis" in errors[0]
    bad = [finding.remedy for finding in findings if finding.verdict is Verdict.BAD]
    assert bad == ["PostgreSQL was rolled back: stop all processes, empty Redis, start again"]

    flush_server(own_redis)
    work.calls.clear()
    async with open_archived_engine(own_redis, own_postgres, work, schema=SCHEMA) as filled:
        assert set(await filled.ends([waiting, *since])) == {"COMPLETED"}
        await filled.archive_all()
    assert work.calls.count("b") == work.calls.count("a") + 1
