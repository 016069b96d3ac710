"""kill -9 at random moments, then `runnel resume`: every execution ends as an undisturbed one."""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from runnel.ports.archive import ExecutionFilter
from runnel.runtime.look import looking
from runnel.settings import Settings
from runnel.views import ExecutionView

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


def runnel(*arguments: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "runnel", *arguments, "--data-dir", str(folder / "data")]


def prepare(folder: Path) -> Path:
    (folder / "killed_steps.py").write_text((HERE / "killed_steps.py").read_text())
    file = folder / "flow.json"
    file.write_text(json.dumps(document()))
    return file


def kill_in_the_middle(folder: Path, number: int, chance: random.Random) -> None:
    """Kills the process when its log has a random number of lines, or a moment after."""
    file = prepare(folder)
    log = folder / f"log{number}.txt"
    lines = chance.randint(0, len(NODES))
    process = subprocess.Popen(
        runnel("run", str(file), "--json", "--input", f"file={log}", folder=folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    spins = chance.randint(0, 3_000)
    while process.poll() is None:
        written = log.read_text().count("\n") if log.exists() else 0
        if written >= lines:
            spins -= 1
        if spins < 0:
            process.kill()
            break
    process.wait(DEADLINE_S)


def all_views(folder: Path) -> dict[str, ExecutionView]:
    """Every execution of the data dir, as `runnel show` shows it."""
    return asyncio.run(_views(Settings(data_dir=folder / "data")))


async def _views(settings: Settings) -> dict[str, ExecutionView]:
    async with looking(settings) as look:
        headers = await look.client.list_executions(ExecutionFilter(limit=100))
        return {
            header.execution_id: await look.client.get(header.execution_id) for header in headers
        }


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(KILLS_PER_FOLDER):
        kill_in_the_middle(tmp_path, number, chance)
    before = all_views(tmp_path)

    resumed = subprocess.run(
        runnel("resume", "--json", folder=tmp_path), capture_output=True, timeout=120, check=False
    )

    assert resumed.returncode == 0, resumed.stderr.decode()
    ended = all_views(tmp_path)
    assert ended.keys() == before.keys() != set()
    for execution_id, view in ended.items():
        assert view.status == "COMPLETED"
        assert view.output == {name: name for name in NODES}
        check_settled_ran_once(before[execution_id], view)


def check_settled_ran_once(before: ExecutionView, view: ExecutionView) -> None:
    """A node that was settled before the kill has left exactly one line in its log."""
    counts = Counter(Path(view.input["file"]).read_text().split())
    for name, node in before.nodes.items():
        if node.state == "COMPLETED":
            assert counts[name] == 1, (view.execution_id, counts)
    assert set(counts) == set(NODES)
