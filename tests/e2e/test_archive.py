"""Processes on both servers: Redis runs, PostgreSQL remembers, and workers know only Redis."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.cli.main import run_command
from tests.e2e.program import Program

pytestmark = pytest.mark.e2e


@pytest.fixture
def archived(
    own_redis: RedisServer, shared_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """What orchestrators and callers are told; a schema of its own for each test."""
    schema = f"test {own_redis.port}"
    found = {
        "REDIS_URL": own_redis.url,
        "POSTGRES_URL": shared_postgres.url,
        "POSTGRES_SCHEMA": schema,
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


async def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = await asyncio.to_thread(run_command, arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


async def test_what_ran_on_redis_is_listed_and_kept_as_long_as_it_should(
    tmp_path: Path,
    archived: dict[str, str],
    own_redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program(tmp_path)
    only_redis = {"REDIS_URL": own_redis.url}
    # The worker comes first, and opens a Redis that has no archive yet.
    async with program.running("worker", **only_redis) as worker:
        await worker.says("process.started")
        async with program.running("orchestrator", **archived):
            done: subprocess.CompletedProcess[str] = await asyncio.to_thread(
                program.run, "run", "chain.json", **archived
            )
            listed = await ask(capsys, "list", "--json")
            healthy = await ask(capsys, "doctor", "--json")
            refused = await asyncio.to_thread(program.run, "orchestrator", **only_redis)
            monkeypatch.setenv("RETENTION_COMPLETED_DAYS", "0")
            trimmed = await ask(capsys, "trim")
            left = await ask(capsys, "list", "--json")

    assert json.loads(done.stdout) == {"y": 1}
    assert json.loads(listed[1])["status"] == "COMPLETED"
    findings: list[dict[str, Any]] = [json.loads(line) for line in healthy[1].splitlines()]
    assert {each["verdict"] for each in findings} == {"ok"}
    assert {"PostgreSQL", "migrations"} <= {each["about"] for each in findings}
    assert refused.returncode == 2
    assert "POSTGRES_URL: expected the URL of the PostgreSQL that this Redis" in refused.stderr
    assert trimmed[1] == "deleted: 1 execution, 2 empty queues\n"
    assert left[1] == ""


async def test_an_archive_that_is_not_there_is_named_without_its_password(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", own_redis.url)
    monkeypatch.setenv("POSTGRES_URL", "postgresql://ada:geheim@127.0.0.1:1/d")

    code, _, said = await ask(capsys, "list")
    verdict, found, _ = await ask(capsys, "doctor")

    assert (code, verdict) == (1, 1)
    shown = "postgresql://***@127.0.0.1:1/d"
    assert said.startswith(f"error: can't use the PostgreSQL at {shown}: [Errno 111]")
    assert said.endswith("correct POSTGRES_URL (or POSTGRES_HOST, POSTGRES_PASSWORD, …)\n")
    assert f"bad  PostgreSQL        {shown}: [Errno 111]" in found
    assert "geheim" not in said + found


async def test_while_postgres_is_away_one_can_look_at_what_runs_and_ask_for_nothing(
    tmp_path: Path,
    own_redis: RedisServer,
    own_postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program(tmp_path)
    servers = {"REDIS_URL": own_redis.url, "POSTGRES_URL": own_postgres.url}
    for name, value in servers.items():
        monkeypatch.setenv(name, value)
    words = ("-i", f"file={program.log}", "-i", f"gate={tmp_path / 'gate'}")
    async with (
        program.running("worker", REDIS_URL=own_redis.url, RUNNEL_ALLOW_PYTHON="steps:*"),
        program.running("orchestrator", **servers),
        program.running("run", "gated.json", *words, **servers) as caller,
    ):
        await caller.says("first: started")
        _, listed, _ = await ask(capsys, "list", "--json")
        id_ = json.loads(listed)["execution_id"]
        await asyncio.to_thread(own_postgres.kill)

        seen = [await ask(capsys, command, id_) for command in ("show", "history")]
        refused = [await ask(capsys, "cancel", id_), await ask(capsys, "list")]
        async with program.running("watch", id_, **servers) as watcher:
            await watcher.says("first: started")
            (tmp_path / "gate").touch()
            watched, _, _ = await watcher.ends()

    assert [code for code, _, _ in (*seen, *refused)] == [0, 0, 1, 1]
    assert "first" in seen[0][1]
    assert all("error: can't use the PostgreSQL at" in said for _, _, said in refused)
    assert watched == 0


def test_old_executions_of_a_data_directory_are_deleted_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(tmp_path)
    program.run("run", "chain.json")
    monkeypatch.chdir(tmp_path)

    codes = [run_command(["trim"])]
    monkeypatch.setenv("RETENTION_COMPLETED_DAYS", "0")
    codes.append(run_command(["trim"]))

    assert codes == [0, 0]
    assert capsys.readouterr().out.splitlines() == [
        "deleted: 0 executions, 0 empty queues",
        "deleted: 1 execution, 0 empty queues",
    ]
