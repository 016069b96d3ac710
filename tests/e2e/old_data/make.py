"""Writes the old data anew: `python -m tests.e2e.old_data.make`.

Not to be done lightly. The files in this folder were written in November 2026 by Runnel 0.1.0, and
the test proves that later code goes on with them. Files written by the code of today prove nothing
about older data. So keep these, and write new ones under another name.

Runnel is only used as its users do, by its command line and over HTTP: this works with any version.
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
# These are of one life of a data directory: the next process makes them anew.
LEFT_OUT = (".sock", "-shm")
WAITING = {"approval": "approve", "nap": "sleep", "long-nap": "sleep", "retry": "flaky"}


@dataclass(kw_only=True)
class Maker:
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
        found: dict[str, Any] = answer.json()
        return found

    def submit(self, name: str, document: dict[str, Any], given: Any = None) -> None:
        self.post("/v1/workflows", document)
        begun = self.post(f"/v1/workflows/{document['name']}/run", {"input": given or {}})
        self.ids[name] = begun["execution_id"]

    def until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not holds(found := self.http.get(f"/v1/executions/{self.ids[name]}").json()):
            if time.monotonic() > end:
                raise AssertionError(f"{name} does not come to it: {found}")

    def until_status(self, name: str, status: str) -> None:
        self.until(name, lambda found: found["status"] == status)

    def until_lines(self, wanted: Counter[str]) -> None:
        end = time.monotonic() + DEADLINE_S
        log = self.folder / flows.LOG
        while not wanted <= (found := Counter(log.read_text().splitlines())):
            if time.monotonic() > end:
                raise AssertionError(f"only noted: {found}")


def make(maker: Maker, *, has_run: bool) -> dict[str, Any]:
    """Leaves a store with executions of all kinds; returns what is known about them."""
    (maker.folder / "steps.py").write_text(flows.STEPS)
    token = maker.run("token", "create", "old", "--scope", "admin").strip()
    with dev(maker, token):
        finish_some(maker)
        add_triggers(maker)
        begin_others(maker)
    if has_run:
        kill_a_run(maker)
    return {"token": token, "ids": maker.ids, **describe(maker)}


@contextmanager
def dev(maker: Maker, token: str) -> Iterator[None]:
    """It is killed at the end, with all that runs in it."""
    with maker.begin("dev", "--port", "0", "--concurrency", "16") as process:
        try:
            lines = iter(process.stderr or ())
            url = next(line.partition(ANSWERS)[2].strip() for line in lines if ANSWERS in line)
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as maker.http:
                yield
        finally:
            process.send_signal(signal.SIGKILL)


def finish_some(maker: Maker) -> None:
    for version in (1, 2):
        maker.submit(f"report {version}", flows.report(version), {"shop": "Tea"})
        maker.until_status(f"report {version}", "COMPLETED")
    again = maker.post(f"/v1/executions/{maker.ids['report 1']}/rerun", {"nodes": ["last"]})
    maker.ids["rerun"] = again["execution_id"]
    maker.until_status("rerun", "COMPLETED")
    maker.submit("failed", flows.document("failed"))
    maker.until_status("failed", "FAILED")
    maker.submit("cancelled", flows.document("cancelled"))
    maker.until("cancelled", waits_in("go"))
    maker.run("cancel", maker.ids["cancelled"], "--reason", "not needed")
    maker.until_status("cancelled", "CANCELLED")


def add_triggers(maker: Maker) -> None:
    """The schedule never comes due, so that nothing is missed however late the test runs."""
    yearly = ("--cron", "@yearly", "--starts-at", "2900-01-01T00:00:00Z")
    maker.run("schedule", "add", "far", "report", *yearly, "-i", "shop=Tea")
    secret = ("--secret", "hook", "--map", "shop={{ body.name }}")
    maker.run("webhook", "add", "report", "--kind", "token", *secret)


def begin_others(maker: Maker) -> None:
    """What is slow to come to its point begins first."""
    maker.ids["held"] = maker.post("/v1/workflow", flows.document("held"))["execution_id"]
    for name in ("interrupted", "approval", "long-nap", "parent", "large", "keyed"):
        maker.submit(name, flows.document(name))
    maker.until_lines(Counter(["keyed held"]))
    maker.submit("keyed too", flows.document("keyed"))
    maker.submit("map", flows.document("map"), {"text": flows.SHARED})
    for name in ("nap", "retry"):
        maker.submit(name, flows.document(name))
    maker.until_lines(Counter([*flows.HOLDING, "item 0", "item 1"]))
    for name, node in WAITING.items():
        maker.until(name, waits_in(node))
    maker.until("keyed too", waits_in("held"))
    maker.until("map", lambda found: found["nodes"]["each"]["items_settled"] == 2)


def waits_in(node: str) -> Callable[[dict[str, Any]], bool]:
    return lambda found: found["nodes"].get(node, {}).get("waits_for") is not None


def kill_a_run(maker: Maker) -> None:
    (maker.folder / "run.json").write_text(json.dumps(flows.document("run")))
    with maker.begin("run", "run.json") as process:
        maker.until_lines(Counter(["run held"]))
        process.send_signal(signal.SIGKILL)
    [found] = maker.documents("list", "--workflow", "run")
    maker.ids["run"] = found["execution_id"]


def describe(maker: Maker) -> dict[str, Any]:
    """What the commands print of all that is stored. Of what goes on, only what lasts."""
    listed = maker.documents("list", "--all", "--limit", "100")
    ids = [each["execution_id"] for each in listed]
    ended = [each["execution_id"] for each in listed if each["finished_at"] is not None]
    return {
        "histories": {each: maker.documents("history", each) for each in ids},
        "shown": {each: maker.documents("show", each)[0] for each in ended},
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
                archive.add(path, path.name, filter=anonymous)
    write("sqlite.tar.gz", packed.getvalue())


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
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
    for each in (make_sqlite, make_servers):
        with tempfile.TemporaryDirectory(prefix="runnel-old-data-") as folder:
            each(Path(folder))


if __name__ == "__main__":
    main()
