"""What a crash point holds: how its executions stand, what is settled, and what is left to do."""

import hashlib

import msgspec

from runnel.client import Client
from runnel.core.ids import root_of
from runnel.core.json_types import Json
from runnel.core.workflow import SLEEP, Workflow
from runnel.ports.archive import ExecutionFilter
from runnel.testing.crash_points.diary import About, Diary
from runnel.testing.crash_points.storage import Remains
from runnel.views import ExecutionView

EXECUTIONS_MAX = 1_000
TEXT_CHARS_MAX = 1_000
ROOT = "ROOT"


class Snapshot(Remains, frozen=True, kw_only=True):
    """`settled` names nodes and items by their idempotency key, as the lines of `runs` do."""

    executions: dict[str, Json]
    runs: list[str]


def keep_snapshot(
    diary: Diary, remains: Remains, executions: dict[str, Json] | None = None
) -> None:
    """Added to the diary as the last one so far."""
    snapshot = Snapshot(
        executions=executions or {},
        settled=remains.settled,
        runs=diary.read(About.RUNS),
        left_over=remains.left_over,
        dead_letters=remains.dead_letters,
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
