"""Writes the files of the old data: `python -m tests.e2e.old_data.make`.

Do not overwrite the files in this folder. Runnel 0.1.0 wrote them in November 2026, and the test
proves that later code resumes them. Files of today's code prove nothing about older data. Keep the
old files and write new ones under another name.

This script uses only the command line and HTTP, as users do, so it works with any version.
"""

import gzip
import io
import json
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.e2e.old_data import flows
from tests.e2e.old_data.dumps import dump_postgres, dump_redis
from tests.e2e.program import clean_environment

HERE = Path(__file__).parent
DEADLINE_S = 20.0
ANSWERS = "Runnel answers on "
# Files that belong to one process. The next process creates its own.
LEFT_OUT = (".sock", "-shm")
WAITING = {"approval": "approve", "nap": "sleep", "long-nap": "sleep", "retry": "flaky"}


@dataclass(kw_only=True)
class Maker:
    """Runs commands in `folder`; `ids` maps names to the ids of submitted executions."""

    folder: Path
    environment: dict[str, str]
    http: httpx.Client = field(default_factory=httpx.Client)
    ids: dict[str, str] = field(default_factory=dict)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "runnel", *words]

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{words}: {done.stderr}")
        return done.stdout

    def documents(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*words, "--json").splitlines()]

    def post(self, path: str, body: Any = None) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        if not answer.is_success:
            raise AssertionError(answer.text)
        document: dict[str, Any] = answer.json()
        return document

    def submit(self, name: str, document: dict[str, Any], given: Any = None) -> None:
        self.post("/v1/workflows", document)
        answer = self.post(f"/v1/workflows/{document['name']}/run", {"input": given or {}})
        self.ids[name] = answer["execution_id"]

    def wait_until(self, name: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition(execution := self.http.get(f"/v1/executions/{self.ids[name]}").json()):
            if time.monotonic() > end:
                raise AssertionError(f"{name} did not reach the expected state: {execution}")

    def wait_for_status(self, name: str, status: str) -> None:
        self.wait_until(name, lambda execution: execution["status"] == status)

    def wait_for_log(self, expected: Counter[str]) -> None:
        end = time.monotonic() + DEADLINE_S
        log = self.folder / flows.LOG
        while not expected <= (logged := Counter(log.read_text().splitlines())):
            if time.monotonic() > end:
                raise AssertionError(f"the log has only: {logged}")


def make(maker: Maker, *, has_run: bool) -> dict[str, Any]:
    """Creates a store with executions of all kinds; returns the facts that the test compares."""
    (maker.folder / "steps.py").write_text(flows.STEPS)
    token = maker.run("token", "create", "old", "--scope", "admin").strip()
    with dev(maker, token):
        create_finished_executions(maker)
        add_triggers(maker)
        start_unfinished_executions(maker)
    if has_run:
        kill_a_run(maker)
    return {"token": token, "ids": maker.ids, **describe(maker)}


@contextmanager
def dev(maker: Maker, token: str) -> Iterator[None]:
    """Runs `runnel dev` and kills it at the end, together with its running tasks."""
    with maker.begin("dev", "--port", "0", "--concurrency", "16") as process:
        try:
            lines = iter(process.stderr or ())
            url = next(line.partition(ANSWERS)[2].strip() for line in lines if ANSWERS in line)
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as maker.http:
                yield
        finally:
            process.send_signal(signal.SIGKILL)


def create_finished_executions(maker: Maker) -> None:
    for version in (1, 2):
        maker.submit(f"report {version}", flows.report(version), {"shop": "Tea"})
        maker.wait_for_status(f"report {version}", "COMPLETED")
    again = maker.post(f"/v1/executions/{maker.ids['report 1']}/rerun", {"nodes": ["last"]})
    maker.ids["rerun"] = again["execution_id"]
    maker.wait_for_status("rerun", "COMPLETED")
    maker.submit("failed", flows.document("failed"))
    maker.wait_for_status("failed", "FAILED")
    maker.submit("cancelled", flows.document("cancelled"))
    maker.wait_until("cancelled", is_waiting_in("go"))
    maker.run("cancel", maker.ids["cancelled"], "--reason", "not needed")
    maker.wait_for_status("cancelled", "CANCELLED")


def add_triggers(maker: Maker) -> None:
    """Adds a webhook, and a schedule that is never due, so that no test run misses a tick."""
    yearly = ("--cron", "@yearly", "--starts-at", "2900-01-01T00:00:00Z")
    maker.run("schedule", "add", "far", "report", *yearly, "-i", "shop=Tea")
    secret = ("--secret", "hook", "--map", "shop={{ body.name }}")
    maker.run("webhook", "add", "report", "--kind", "token", *secret)


def start_unfinished_executions(maker: Maker) -> None:
    """Starts the executions that the kill interrupts, the slow ones first."""
    maker.ids["held"] = maker.post("/v1/workflow", flows.document("held"))["execution_id"]
    for name in ("interrupted", "approval", "long-nap", "parent", "large", "keyed"):
        maker.submit(name, flows.document(name))
    maker.wait_for_log(Counter(["keyed held"]))
    maker.submit("keyed too", flows.document("keyed"))
    maker.submit("map", flows.document("map"), {"text": flows.SHARED})
    for name in ("nap", "retry"):
        maker.submit(name, flows.document(name))
    maker.wait_for_log(Counter([*flows.HOLDING, "item 0", "item 1"]))
    for name, node in WAITING.items():
        maker.wait_until(name, is_waiting_in(node))
    maker.wait_until("keyed too", is_waiting_in("held"))
    maker.wait_until("map", lambda execution: execution["nodes"]["each"]["items_settled"] == 2)


def is_waiting_in(node: str) -> Callable[[dict[str, Any]], bool]:
    return lambda execution: execution["nodes"].get(node, {}).get("waits_for") is not None


def kill_a_run(maker: Maker) -> None:
    (maker.folder / "run.json").write_text(json.dumps(flows.document("run")))
    with maker.begin("run", "run.json") as process:
        maker.wait_for_log(Counter(["run held"]))
        process.send_signal(signal.SIGKILL)
    [execution] = maker.documents("list", "--workflow", "run")
    maker.ids["run"] = execution["execution_id"]


def describe(maker: Maker) -> dict[str, Any]:
    """Returns the output of the listing commands. Unfinished executions have only a history."""
    listed = maker.documents("list", "--all", "--limit", "100")
    ids = [execution["execution_id"] for execution in listed]
    ended = [
        execution["execution_id"] for execution in listed if execution["finished_at"] is not None
    ]
    return {
        "histories": {id_: maker.documents("history", id_) for id_ in ids},
        "shown": {id_: maker.documents("show", id_)[0] for id_ in ended},
        "letters": maker.documents("dlq", "list"),
        "schedules": maker.documents("schedule", "list"),
        "webhooks": maker.documents("webhook", "list"),
        "tokens": maker.documents("token", "list"),
        "workflows": maker.documents("workflows"),
        "versions": maker.documents("workflows", "report"),
    }


def make_sqlite(folder: Path) -> None:
    maker = Maker(folder=folder, environment=clean_environment())
    write("sqlite.json.gz", json.dumps(make(maker, has_run=True)).encode())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted((folder / ".runnel").iterdir()):
            if not path.name.endswith(LEFT_OUT):
                archive.add(path, path.name, filter=remove_owner)
    write("sqlite.tar.gz", packed.getvalue())


def remove_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def make_servers(folder: Path) -> None:
    with RedisServer() as redis, PostgresServer() as postgres:
        redis.start()
        postgres.start()
        urls = {
            "REDIS_URL": redis.url,
            "POSTGRES_URL": postgres.url,
            "RUNNEL_ALLOW_PYTHON": "steps:*",
        }
        maker = Maker(folder=folder, environment=clean_environment(**urls))
        write("servers.json.gz", json.dumps(make(maker, has_run=False)).encode())
        write("redis.jsonl.gz", dump_redis(redis.url).encode())
        write("postgres.sql.gz", dump_postgres(postgres.url).encode())


def write(name: str, data: bytes) -> None:
    (HERE / name).write_bytes(gzip.compress(data, mtime=0))


def main() -> None:
    for make_files in (make_sqlite, make_servers):
        with tempfile.TemporaryDirectory(prefix="runnel-old-data-") as folder:
            make_files(Path(folder))


if __name__ == "__main__":
    main()
