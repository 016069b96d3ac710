"""kill -9 at random moments, then `runnel resume`: every execution ends as an undisturbed one."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

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


def all_shown(folder: Path) -> dict[str, dict[str, object]]:
    """Every execution of the data dir, as `runnel show` shows it."""
    rows = printed(runnel("list", "--json", "--limit", "100", folder=folder))
    ids = [str(row["execution_id"]) for row in rows]
    return {each: printed(runnel("show", each, "--json", folder=folder))[0] for each in ids}


def printed(command: list[str]) -> list[dict[str, object]]:
    done = subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5))
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(KILLS_PER_FOLDER):
        kill_in_the_middle(tmp_path, number, chance)
    before = all_shown(tmp_path)

    resumed = subprocess.run(
        runnel("resume", "--json", folder=tmp_path), capture_output=True, timeout=120
    )

    assert resumed.returncode == 0, resumed.stderr.decode()
    ended = all_shown(tmp_path)
    assert ended, "no run had come as far as to store its execution"
    for execution_id, view in ended.items():
        assert view["status"] == "COMPLETED"
        assert view["output"] == {name: name for name in NODES}
        check_settled_ran_once(before.get(execution_id, {}), view)


def check_settled_ran_once(before: dict[str, object], view: dict[str, object]) -> None:
    """A node that was settled before the kill has left exactly one line in its log."""
    log = str(view["input"]["file"])  # type: ignore[index]
    counts = Counter(Path(log).read_text().split())
    nodes = before.get("nodes", {})
    if not isinstance(nodes, dict):
        raise AssertionError(f"nodes are {nodes!r}")
    for name, node in nodes.items():
        if node["state"] == "COMPLETED":
            assert counts[name] == 1, (log, counts)
    assert set(counts) == set(NODES)
