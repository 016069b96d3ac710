"""What a data dir holds: how its executions stand, what is settled, and what is left to do."""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import msgspec

from runnel.backends.sqlite.database import FILE_NAME
from runnel.client import Client
from runnel.core.codec import decode_entry
from runnel.core.events import NodeCancelled, NodeCompleted, NodeFailed, NodeSkipped
from runnel.core.ids import ExecutionId, Nonce, Token, root_of
from runnel.core.json_types import Json
from runnel.core.workflow import SLEEP, Workflow
from runnel.ports.archive import ExecutionFilter
from runnel.testing.crash_points.diary import About, Diary
from runnel.views import ExecutionView

EXECUTIONS_MAX = 1_000
TEXT_CHARS_MAX = 1_000
ROOT = "ROOT"

_SETTLED = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)
_HISTORY = "SELECT aggregate_id, entry FROM history ORDER BY aggregate_id, sequence, part"
# Each counts what nobody would look at again, once every execution is final.
_LEFT_OVER = {
    "unfinished executions": "SELECT count(*) FROM executions WHERE state IN ('PENDING','RUNNING')",
    "unconsumed messages": "SELECT count(*) FROM messages",
    "timers": "SELECT count(*) FROM timers",
    "histories of limits": "SELECT count(*) FROM history WHERE aggregate_id LIKE 'limit:%'",
    "partitions with an owner": "SELECT count(*) FROM partitions WHERE owner != ''",
}
_DEAD_LETTERS = "SELECT count(*) FROM dead_letters"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`settled` names nodes and items by their idempotency key, as the lines of `runs` do."""

    executions: dict[str, Json]
    settled: list[str]
    runs: list[str]
    left_over: dict[str, int]
    dead_letters: int


def take_snapshot(diary: Diary, executions: dict[str, Json] | None = None) -> None:
    """Read from the tables themselves, and added to the diary as the last one so far."""
    with closing(sqlite3.connect(diary.data_dir / FILE_NAME)) as db:
        counts = {name: _count(db, query) for name, query in _LEFT_OVER.items()}
        snapshot = Snapshot(
            executions=executions or {},
            settled=list(_settled(db)),
            runs=diary.read(About.RUNS),
            left_over={name: count for name, count in counts.items() if count},
            dead_letters=_count(db, _DEAD_LETTERS),
        )
    diary.note(About.SNAPSHOTS, msgspec.json.encode(snapshot).decode())


def read_snapshots(diary: Diary) -> list[Snapshot]:
    return [msgspec.json.decode(line, type=Snapshot) for line in diary.read(About.SNAPSHOTS)]


async def all_executions(client: Client) -> dict[str, Json]:
    """All that a crash may not change of them: not the moments, and not the attempts it took."""
    wanted = ExecutionFilter(with_children=True, limit=EXECUTIONS_MAX)
    found: dict[str, Json] = {}
    for header in await client.list_executions(wanted):
        id_ = header.execution_id
        root = root_of(id_)
        execution = await client.load(id_)
        found[id_.replace(root, ROOT)] = _comparable(
            await client.get(id_), execution.graph.workflow, root
        )
    return found


def _count(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _settled(db: sqlite3.Connection) -> Iterator[str]:
    for aggregate_id, entry in db.execute(_HISTORY):
        for event in decode_entry(entry).events:
            if isinstance(event, _SETTLED):
                id_ = ExecutionId(aggregate_id)
                yield Token(id_, event.node, event.item, 0, Nonce("")).idempotency_key


def _comparable(view: ExecutionView, workflow: Workflow, root: str) -> Json:
    sleeps = {str(node.id) for node in workflow.nodes if node.handler == SLEEP}
    nodes = {
        node_id: {
            "state": node.state,
            # How long it slept is no result, and differs each time.
            "output": None if node_id in sleeps else _short(node.output, root),
            "error": _short(node.error, root),
            "reason": _short(node.reason, root),
            "items": [node.items_settled, node.items],
        }
        for node_id, node in view.nodes.items()
    }
    return {
        "state": view.status,
        "input": _short(view.input, root),
        "output": _short(view.output, root),
        "error": _short(view.error, root),
        "nodes": nodes,
    }


def _short(value: Json, root: str) -> str:
    """Large values by their hash; ids are new in every run."""
    text = msgspec.json.encode(value, order="deterministic").decode().replace(root, ROOT)
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()[:16]}"
