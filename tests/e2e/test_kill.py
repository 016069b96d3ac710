"""`kill -9` at random points, then `runnel resume`: every execution completes as usual."""

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from runnel.app.stores import open_store_session
from runnel.ports.archive import ExecutionFilter
from runnel.settings.model import Settings
from runnel.views.execution import ExecutionView
from tests.e2e.program import Program
from tests.fork_server import Streams

HERE = Path(__file__).parent
NODES = {
    "a": [],
    "b1": ["a"],
    "b2": ["a"],
    "b3": ["a"],
    "c": ["b1", "b2"],
    "d": ["c", "b3"],
    "e": ["d"],
    "f": ["e"],
}
KILLS_PER_FOLDER = 10
DEADLINE_S = 60


def document() -> dict[str, object]:
    nodes = [
        {
            "id": name,
            "handler": "python",
            "dependencies": parents,
            "config": {
                "function": "killed_steps:step",
                "args": {"file": "{{ input.file }}", "name": name, "seconds": 0.02},
            },
        }
        for name, parents in NODES.items()
    ]
    output = {name: f"{{{{ {name}.from }}}}" for name in NODES}
    return {"name": "killed", "nodes": nodes, "output": output}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    (tmp_path / "killed_steps.py").write_text((HERE / "killed_steps.py").read_text())
    (tmp_path / "flow.json").write_text(json.dumps(document()))
    return program


def kill_in_the_middle(program: Program, number: int, rng: random.Random) -> None:
    """Kills the process once its log has a random number of lines, or up to 3,000 polls later."""
    log = program.folder / f"log{number}.txt"
    lines = rng.randint(0, len(NODES))
    with Path(os.devnull).open("r+") as devnull:
        streams = Streams(devnull.fileno(), devnull.fileno(), devnull.fileno())
        words = ("run", "flow.json", "--json", "--input", f"file={log}")
        process = program.begin(*words, streams=streams)
    spins = rng.randint(0, 3_000)
    while process.poll() is None:
        written = log.read_text().count("\n") if log.exists() else 0
        if written >= lines:
            spins -= 1
        if spins < 0:
            process.kill()
            break
    process.wait(DEADLINE_S)


def read_views(folder: Path) -> dict[str, ExecutionView]:
    """Returns every execution of the data directory, as `runnel show` prints it."""
    return asyncio.run(_read_views(Settings(data_dir=folder / ".runnel")))


async def _read_views(settings: Settings) -> dict[str, ExecutionView]:
    async with open_store_session(settings) as session:
        headers = await session.client.list_executions(ExecutionFilter(limit=100))
        return {
            header.execution_id: await session.client.get(header.execution_id) for header in headers
        }


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5))
def test_a_killed_run_resumes_and_completed_nodes_do_not_run_again(
    program: Program, seed: int
) -> None:
    rng = random.Random(seed)
    for number in range(KILLS_PER_FOLDER):
        kill_in_the_middle(program, number, rng)
    before = read_views(program.folder)

    resumed = program.run("resume", "--json")

    assert resumed.returncode == 0, resumed.stderr
    ended = read_views(program.folder)
    assert ended.keys() == before.keys() != set()
    for execution_id, view in ended.items():
        assert view.status == "COMPLETED"
        assert view.output == {name: name for name in NODES}
        check_settled_ran_once(before[execution_id], view)


def check_settled_ran_once(before: ExecutionView, view: ExecutionView) -> None:
    """Checks that each node that was completed before the resume has one line in the log."""
    counts = Counter(Path(view.input["file"]).read_text().split())
    for name, node in before.nodes.items():
        if node.status == "COMPLETED":
            assert counts[name] == 1, (view.execution_id, counts)
    assert set(counts) == set(NODES)
