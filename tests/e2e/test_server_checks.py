"""Every command reports wrong settings and unusable servers in one sentence each."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from runnel.app.private_servers import redis as redis_wire
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.cli.main import run_command
from runnel.settings.variables import VARIABLES
from tests.e2e.dev_server import ANSWERS
from tests.e2e.program import DEADLINE_S, Program

pytestmark = pytest.mark.e2e

URL = "a URL such as redis://host:6379/0"
REMEDY = "start it, or correct --redis-url, REDIS_URL (or REDIS_HOST, REDIS_PORT, REDIS_PASSWORD)"

NOT_A_PORT = "REDIS_PORT: expected a whole number from 1 to 65535"
NOT_A_NUMBER = "WORKER_CONCURRENCY: expected a whole number of at least 1"
UNNAMED = (
    "REDIS_URL: expected the URL of a Redis server (or REDIS_HOST and so on), got nothing; "
    "with RUNNEL_ENV=prod there is no default"
)
BEAT = "WORKER_HEARTBEAT_INTERVAL"
SEARCHED = "Python searched <here>, PYTHONPATH and the installed packages"

WRONG_SETTINGS = [
    (
        "worker",
        {"WORKER_CONCURRENCY": "none", "REDIS_PORT": "70000"},
        f"{NOT_A_PORT}, got '70000'\n{NOT_A_NUMBER}, got 'none'",
    ),
    ("orchestrator", {"REDIS_URL": "h:6379"}, f"REDIS_URL: expected {URL}, got 'h:6379'"),
    (
        "orchestrator --redis-url amqp://me:geheim@h",
        {},
        f"--redis-url: expected {URL}, got 'amqp://***@h'",
    ),
    (
        "orchestrator",
        {"RUNNEL_ENV": "prod"},
        UNNAMED,
    ),
    (
        "orchestrator --take-archive",
        {},
        "--take-archive: expected POSTGRES_URL to name the archive, got nothing",
    ),
    (
        "config",
        {"WORKER_HEARTBEAT_INTERVAL": "9"},
        f"WORKER_HEARTBEAT_TIMEOUT: expected at least 3 times {BEAT} (9), got 9",
    ),
    (
        "list --data-dir x --redis-url redis://h",
        {},
        "--data-dir and --redis-url name two stores; give only one of them",
    ),
    (
        "run any.yaml --concurrency 8",
        {"REDIS_HOST": "h"},
        (
            "--concurrency: workers run this workflow, and each has its own limit; set it with "
            "'runnel worker --concurrency'"
        ),
    ),
    (
        "worker --queues a,,b",
        {},
        "--queues: expected names separated by commas, got 'a,,b'",
    ),
    (
        "worker --app nowhere:app",
        {},
        f"--app: there is no module 'nowhere'; {SEARCHED}",
    ),
    (
        "dev --queues python",
        {},
        (
            "--queues: a data directory has no other worker for the other queues; use Redis, for "
            "example with --with-servers"
        ),
    ),
    (
        "dev --with-servers --redis-url redis://h",
        {},
        "--with-servers and --redis-url name two stores; give only one of them",
    ),
]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("arguments", "environ", "sentence"), WRONG_SETTINGS)
def test_wrong_settings_are_answered_with_a_sentence(
    arguments: str,
    environ: dict[str, str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in environ.items():
        monkeypatch.setenv(name, text)

    code = run_command(arguments.split())

    stderr = capsys.readouterr().err.replace(str(Path.cwd()), "<here>")
    assert (code, stderr) == (2, f"error: {sentence}\n")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("command", ["orchestrator", "worker", "list", "show @last"])
def test_an_unreachable_server_is_named_without_its_password(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:geheim@127.0.0.1:1/0")
    monkeypatch.setenv("RUNNEL_START_TIMEOUT", "0")

    code = run_command(command.split())

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 1
    assert line.startswith("error: can't use the Redis at redis://***@127.0.0.1:1/0: Error 111")
    assert line.endswith(REMEDY)


ROLES = ["orchestrator", "worker", "api --port 0", "api --port 0 --workers 2"]


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_that_starts_before_redis_waits_for_it(
    role: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    own_redis.kill()

    async with Program(tmp_path).running(*role.split(), REDIS_URL=own_redis.url) as running:
        await running.read_until("server.awaited")
        own_redis.start()
        opened = await running.read_until("store.opened")

    assert f":{own_redis.port}" in opened


@pytest.mark.parametrize("role", ["orchestrator", "api --port 0"])
async def test_a_role_that_starts_before_postgresql_waits_for_it(
    role: str, own_redis: RedisServer, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    servers = {"REDIS_URL": own_redis.url, "POSTGRES_URL": own_postgres.url}
    own_postgres.stop()

    async with Program(tmp_path).running(*role.split(), **servers) as running:
        await running.read_until("server.awaited")
        own_postgres.start()
        opened = await running.read_until("store.opened")

    assert f":{own_redis.port}" in opened


async def test_an_api_that_waited_for_its_servers_answers(
    own_redis: RedisServer, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    servers = {"REDIS_URL": own_redis.url, "POSTGRES_URL": own_postgres.url}
    own_redis.kill()
    own_postgres.stop()

    async with Program(tmp_path).running("api", "--port", "0", **servers) as running:
        await running.read_until("Redis")
        own_redis.start()
        await running.read_until("PostgreSQL")
        own_postgres.start()
        url = (await running.read_until(ANSWERS)).removeprefix(ANSWERS)
        async with httpx.AsyncClient(base_url=url) as http:
            ready = await http.get("/health/ready", timeout=DEADLINE_S)

    assert ready.is_success


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_gives_up_after_the_start_timeout(role: str, tmp_path: Path) -> None:
    unreachable = {"REDIS_URL": "redis://:geheim@127.0.0.1:1/0", "RUNNEL_START_TIMEOUT": "0.3"}

    ended = Program(tmp_path).run(*role.split(), **unreachable)

    lines = ended.stderr.splitlines()
    errors = [line for line in lines if line.startswith("error: can't use the Redis at")]
    assert ended.returncode == 1
    assert "server.awaited" in lines[0]
    assert errors
    assert all(line.endswith(REMEDY) for line in errors)
    assert "geheim" not in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_a_role_gives_up_if_only_postgresql_is_down(
    own_redis: RedisServer, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    servers = {"REDIS_URL": own_redis.url, "POSTGRES_URL": own_postgres.url}
    own_postgres.stop()

    ended = Program(tmp_path).run("orchestrator", RUNNEL_START_TIMEOUT="0.3", **servers)

    assert ended.returncode == 1
    assert "server.awaited" in ended.stderr
    assert "can't use the PostgreSQL at" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["list", "worker"])
def test_a_wrong_password_is_reported_and_not_shown(
    command: str,
    shared_redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REDIS_HOST", "127.0.0.1")
    monkeypatch.setenv("REDIS_PORT", str(shared_redis.port))
    monkeypatch.setenv("REDIS_PASSWORD", "geheim")

    assert run_command([command]) == 1
    stderr = capsys.readouterr().err
    assert "WRONGPASS" in stderr or "invalid" in stderr
    assert "server.awaited" not in stderr
    assert "geheim" not in stderr


def test_config_shows_every_setting_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:geheim@h/0")
    monkeypatch.setenv("REDIS_PASSWORD", "geheim")
    monkeypatch.setenv("REDIS_HOTS", "h")

    assert run_command(["config", "--json"]) == 0
    printed = capsys.readouterr()
    values = json.loads(printed.out)
    assert values.keys() == VARIABLES.keys()
    assert (values["REDIS_URL"], values["REDIS_PASSWORD"]) == ("redis://***@h/0", "***")
    assert printed.err == "warning: REDIS_HOTS is not a setting; did you mean REDIS_HOST?\n"
    assert run_command(["config"]) == 0
    assert "geheim" not in capsys.readouterr().out


WITHOUT_EXTRAS = [
    ("doctor", 0, ""),
    ("list", 0, ""),
    ("doctor --redis-url redis://h", 1, "runnel[redis]"),
    ("worker", 2, "Redis needs the package 'hiredis', which is not installed: `pip install "),
    ("list --redis-url redis://h", 2, "runnel[redis]"),
    ("bench --count 5", 0, "executions per second"),
    ("bench --backend redis", 2, "runnel[postgres,redis]"),
]


@pytest.mark.parametrize(("arguments", "code", "expected"), WITHOUT_EXTRAS)
def test_a_plain_install_works_without_the_packages_for_servers(
    arguments: str, code: int, expected: str
) -> None:
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['redis', 'hiredis', 'asyncpg']))\n"
        "from runnel.cli.main import run_command\n"
        f"sys.exit(run_command({arguments.split()}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, "bug" in done.stderr) == (code, False)
    assert expected in done.stdout + done.stderr


def test_the_doctor_finds_nothing_bad_in_a_data_directory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["doctor"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ok"] * 3
    assert list(Path().iterdir()) == []


def configure(server: RedisServer, name: str, value: str) -> None:
    password = server.url.split("@")[0].rpartition(":")[2]
    assert redis_wire.send_command(server.port, password, f"CONFIG SET {name} {value}") == "OK"


def run_doctor(
    server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, str]]:
    """Returns the exit code, and verdict and finding by subject."""
    code = run_command(["doctor", "--json", "--redis-url", server.url])
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {
        finding["about"]: f"{finding['verdict']} {finding['found']}" for finding in findings
    }


def test_the_doctor_reports_redis_settings_that_lose_data(
    own_redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    code_before, findings = run_doctor(own_redis, capsys)
    assert (code_before, findings["append-only file"]) == (0, "ok on, appendfsync everysec")
    assert findings["partitions"] == "ok none yet: the first process of Runnel creates them"

    configure(own_redis, "appendonly", "no")
    configure(own_redis, "maxmemory-policy", "allkeys-lru")
    configure(own_redis, "maxmemory", "1mb")

    code, findings = run_doctor(own_redis, capsys)
    assert code == 1
    assert findings["append-only file"] == "bad off"
    assert findings["maxmemory-policy"] == "bad allkeys-lru"
    assert findings["memory"].startswith("warn ")


def test_a_warning_of_the_doctor_is_an_error_in_production(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(own_redis, "appendfsync", "no")

    assert run_doctor(own_redis, capsys)[0] == 0
    monkeypatch.setenv("RUNNEL_ENV", "prod")
    code, findings = run_doctor(own_redis, capsys)
    assert (code, findings["append-only file"]) == (1, "warn on, appendfsync no")


def test_the_doctor_reports_an_unreachable_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(["doctor", "--redis-url", "redis://:geheim@127.0.0.1:1/0"]) == 1
    stdout = capsys.readouterr().out
    assert "bad  Redis     redis://***@127.0.0.1:1/0: Error 111" in stdout
    assert REMEDY in stdout
