"""Processes on Redis and PostgreSQL: Redis holds running executions, PostgreSQL the history.

Workers use only Redis.
"""

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
    """Returns the variables of orchestrators and callers, with a separate schema per test."""
    schema = f"test {own_redis.port}"
    variables = {
        "REDIS_URL": own_redis.url,
        "POSTGRES_URL": shared_postgres.url,
        "POSTGRES_SCHEMA": schema,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


async def run_in_process(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    code = await asyncio.to_thread(run_command, arguments)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


async def test_executions_on_redis_are_listed_until_their_retention_ends(
    tmp_path: Path,
    archived: dict[str, str],
    own_redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program(tmp_path)
    only_redis = {"REDIS_URL": own_redis.url}
    # The worker starts first and opens a Redis that has no archive yet.
    async with program.running("worker", **only_redis) as worker:
        await worker.read_until("process.started")
        async with program.running("orchestrator", **archived):
            done: subprocess.CompletedProcess[str] = await asyncio.to_thread(
                program.run, "run", "chain.json", **archived
            )
            listed = await run_in_process(capsys, "list", "--json")
            healthy = await run_in_process(capsys, "doctor", "--json")
            refused = await asyncio.to_thread(program.run, "orchestrator", **only_redis)
            monkeypatch.setenv("RETENTION_COMPLETED_DAYS", "0")
            trimmed = await run_in_process(capsys, "trim")
            listed_after_trim = await run_in_process(capsys, "list", "--json")

    assert json.loads(done.stdout) == {"y": 1}
    assert json.loads(listed[1])["status"] == "COMPLETED"
    findings: list[dict[str, Any]] = [json.loads(line) for line in healthy[1].splitlines()]
    assert {finding["verdict"] for finding in findings} == {"ok"}
    assert {"PostgreSQL", "migrations"} <= {finding["about"] for finding in findings}
    assert refused.returncode == 2
    assert "POSTGRES_URL: expected the URL of the PostgreSQL that this Redis" in refused.stderr
    assert trimmed[1] == "deleted: 1 execution, 2 empty queues\n"
    assert listed_after_trim[1] == ""


async def test_an_unreachable_archive_is_named_without_its_password(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", own_redis.url)
    monkeypatch.setenv("POSTGRES_URL", "postgresql://ada:geheim@127.0.0.1:1/d")

    code, _, stderr = await run_in_process(capsys, "list")
    verdict, findings, _ = await run_in_process(capsys, "doctor")

    assert (code, verdict) == (1, 1)
    shown = "postgresql://***@127.0.0.1:1/d"
    assert stderr.startswith(f"error: can't use the PostgreSQL at {shown}: [Errno 111]")
    assert stderr.endswith("correct POSTGRES_URL (or POSTGRES_HOST, POSTGRES_PASSWORD, …)\n")
    assert f"bad  PostgreSQL        {shown}: [Errno 111]" in findings
    assert "geheim" not in stderr + findings


async def test_without_postgresql_running_executions_can_be_shown_and_other_commands_are_refused(
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
        await caller.read_until("first: started")
        _, listed, _ = await run_in_process(capsys, "list", "--json")
        id_ = json.loads(listed)["execution_id"]
        await asyncio.to_thread(own_postgres.kill)

        seen = [await run_in_process(capsys, command, id_) for command in ("show", "history")]
        refused = [
            await run_in_process(capsys, "cancel", id_),
            await run_in_process(capsys, "list"),
        ]
        async with program.running("watch", id_, **servers) as watcher:
            await watcher.read_until("first: started")
            (tmp_path / "gate").touch()
            watched, _, _ = await watcher.wait()

    assert [code for code, _, _ in (*seen, *refused)] == [0, 0, 1, 1]
    assert "first" in seen[0][1]
    assert all("error: can't use the PostgreSQL at" in stderr for _, _, stderr in refused)
    assert watched == 0


def test_trim_deletes_old_executions_of_a_data_directory(
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
