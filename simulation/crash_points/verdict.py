"""Compares the result after a crash with the undisturbed result."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from runnel.client.store_client import StoreClient
from runnel.core.ids import get_root_id
from runnel.core.values import Json
from runnel.core.workflow import SLEEP, Workflow
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import ExecutionView
from simulation.crash_points.journal import JournalFile, RunJournal
from simulation.crash_points.storage import StorageSummary

EXECUTIONS_MAX = 1_000
TEXT_CHARS_MAX = 1_000
ROOT_PLACEHOLDER = "ROOT"


class Snapshot(StorageSummary, frozen=True, kw_only=True):
    """The state of a run at one time.

    `settled` and `runs` name nodes and items by idempotency key.
    """

    executions: dict[str, Json]
    runs: list[str]


def save_snapshot(
    journal: RunJournal, summary: StorageSummary, executions: dict[str, Json] | None = None
) -> None:
    """Appends a snapshot to the journal."""
    snapshot = Snapshot(
        executions=executions or {},
        settled=summary.settled,
        runs=journal.read(JournalFile.RUNS),
        left_over=summary.left_over,
        dead_letters=summary.dead_letters,
    )
    journal.append(JournalFile.SNAPSHOTS, msgspec.json.encode(snapshot).decode())


def read_snapshots(journal: RunJournal) -> list[Snapshot]:
    return [
        msgspec.json.decode(line, type=Snapshot) for line in journal.read(JournalFile.SNAPSHOTS)
    ]


async def read_executions(client: StoreClient) -> dict[str, Json]:
    """Returns the parts of executions that a crash must not change, without times and attempts."""
    all_executions = ExecutionFilter(with_children=True, limit=EXECUTIONS_MAX)
    executions: dict[str, Json] = {}
    for header in await client.list_executions(all_executions):
        id_ = header.execution_id
        root = get_root_id(id_)
        execution = await client.load(id_)
        executions[id_.replace(root, ROOT_PLACEHOLDER)] = _make_comparable(
            await client.get(id_), execution.graph.workflow, root
        )
    return executions


def _make_comparable(view: ExecutionView, workflow: Workflow, root: str) -> Json:
    sleeps = {str(node.id) for node in workflow.nodes if node.handler == SLEEP}
    nodes = {
        node_id: {
            "state": node.status,
            # The output of a sleep is left out, because its length differs in each run.
            "output": None if node_id in sleeps else _shorten(node.output, root),
            "error": _shorten(node.error, root),
            "reason": _shorten(node.reason, root),
            "items": [node.items_settled, node.items],
        }
        for node_id, node in view.nodes.items()
    }
    return {
        "state": view.status,
        "input": _shorten(view.input, root),
        "output": _shorten(view.output, root),
        "error": _shorten(view.error, root),
        "nodes": nodes,
    }


def _shorten(value: Json, root: str) -> str:
    """Returns the value as text.

    Replaces a large value by a hash, and the root id by a placeholder.
    """
    text = (
        msgspec.json.encode(value, order="deterministic").decode().replace(root, ROOT_PLACEHOLDER)
    )
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def find_problems(
    end: Snapshot, *, crashes: Sequence[Snapshot], undisturbed: Snapshot
) -> list[str]:
    """Returns one sentence per problem. `crashes` are the snapshots after each killed process."""
    return [
        *_find_differences("executions", undisturbed.executions, end.executions),
        *_find_differences("dead letters", undisturbed.dead_letters, end.dead_letters),
        *(f"left over: {count} {name}" for name, count in end.left_over.items()),
        *_find_repeated_attempts(end.runs),
        *(problem for crash in crashes for problem in _find_repeated_nodes(crash, end)),
        *_find_wrong_counts(undisturbed, end, crashes=len(crashes)),
    ]


def _find_differences(path: str, expected: Json, actual: Json) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            yield from _find_differences(f"{path}.{key}", expected.get(key), actual.get(key))
    elif expected != actual:
        yield f"{path}: expected {expected}, found {actual}"


def _find_repeated_attempts(runs: Sequence[str]) -> Iterator[str]:
    for run, count in Counter(runs).items():
        if count > 1:
            yield f"one attempt ran {count} times: {run}"


def _find_repeated_nodes(crash: Snapshot, end: Snapshot) -> Iterator[str]:
    """Yields a sentence for each node that ran again although it was settled before the crash."""
    before, after = _count_by_key(crash.runs), _count_by_key(end.runs)
    for key in crash.settled:
        if after[key] > before[key]:
            yield f"{key} was settled when the process ended, and ran again"


def _find_wrong_counts(undisturbed: Snapshot, end: Snapshot, *, crashes: int) -> Iterator[str]:
    """Yields a sentence for each node that never ran, or ran more than one extra time per crash.

    A node that fails before it succeeds may run less often than in an undisturbed run. The reason
    is that an attempt that was issued but never started counts too.
    """
    expected = _count_by_key(map(_replace_root, undisturbed.runs))
    actual = _count_by_key(map(_replace_root, end.runs))
    for key in sorted(expected.keys() | actual.keys()):
        runs_max = expected[key] + crashes if expected[key] else 0
        if actual[key] > runs_max:
            yield f"{key} ran {actual[key]} times, {expected[key]} without a crash"
        if actual[key] == 0:
            yield f"{key} never ran"


def _replace_root(run: str) -> str:
    end_of_root = min(run.find(mark) for mark in "./" if mark in run)
    return ROOT_PLACEHOLDER + run[end_of_root:]


def _count_by_key(runs: Iterable[str]) -> Counter[str]:
    return Counter(run.rpartition(" ")[0] for run in runs)
