"""A command loads only the modules that it needs. A new import in its start path fails here.

Modules are counted in the process of the command. Its processor time is compared with a process
that imports only the indispensable packages. Both run in turn, and the median counts. stdout is not
a terminal, as in a script, because a terminal needs the import of rich.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from tests.architecture.test_house import SEAMS
from tests.e2e.program import DEADLINE_S, clean_environment

pytestmark = pytest.mark.slow

TURNS = 3
FLOOR = ("-c", "import asyncio, msgspec, sqlite3, typer")
# Runs the command in its arguments, then writes the names of all modules to the file named first.
COUNTING = """
import sys
from pathlib import Path
file = Path(sys.argv.pop(1))
from runnel.__main__ import main
try:
    main()
finally:
    file.write_text("\\n".join(sys.modules))
"""
# Without templates, and in JSON: nothing here needs jinja2 or yaml.
THREE = {
    "name": "three",
    "nodes": [
        {"id": "a", "handler": "input", "config": {"x": 1}},
        {"id": "b", "handler": "input", "dependencies": ["a"], "config": {"x": 2}},
        {"id": "c", "handler": "input", "dependencies": ["b"], "config": {"x": 3}},
    ],
}
UNNEEDED = {"fastapi", "httpx", "jinja2", "jsonschema", "pydantic", "rich", "yaml"}


class Bound(NamedTuple):
    """The limits of a command: its number of runnel modules, and its time relative to FLOOR."""

    command: tuple[str, ...]
    modules: int
    ratio: float


# Limits go down, except when a behaviour gets a module of its own name. On 2026-11-18 there were 9,
# 47, 166 and 109 modules. Six measurements, half of them on a busy machine, gave ratios of 0.63 to
# 0.83, 1.08 to 1.30, 1.88 to 2.16 and 1.52 to 1.90.
BOUNDS = [
    Bound(("--version",), modules=12, ratio=1.1),
    Bound(("validate", "three.json"), modules=49, ratio=1.8),
    Bound(("run", "three.json"), modules=180, ratio=3.5),
    Bound(("list",), modules=114, ratio=2.7),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of all commands, with the workflow."""
    folder = tmp_path_factory.mktemp("cold")
    (folder / "three.json").write_text(json.dumps(THREE))
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> dict[tuple[str, ...], set[str]]:
    """The modules of each command. Afterwards all of them are compiled."""
    return {bound.command: modules(folder, bound.command) for bound in BOUNDS}


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.command[0])
def test_a_command_loads_no_more_modules_than_before(
    bound: Bound, loaded: dict[tuple[str, ...], set[str]]
) -> None:
    names = loaded[bound.command]

    ours = [name for name in names if name.partition(".")[0] == "runnel"]
    assert len(ours) <= bound.modules
    assert names & UNNEEDED == set()


def test_validating_a_plain_workflow_loads_no_event_loop(
    loaded: dict[tuple[str, ...], set[str]],
) -> None:
    assert "asyncio" not in loaded["validate", "three.json"]


def test_a_run_loads_no_lazy_module(loaded: dict[tuple[str, ...], set[str]]) -> None:
    assert loaded["run", "three.json"] & SEAMS.keys() == set()


@pytest.mark.usefixtures("loaded")
def test_a_command_starts_within_its_ratio_to_the_floor(folder: Path) -> None:
    started = {bound.command: ("-m", "runnel", *bound.command) for bound in BOUNDS}
    taken_s: dict[tuple[str, ...], list[float]] = {command: [] for command in (FLOOR, *started)}
    for _ in range(TURNS):
        taken_s[FLOOR].append(start(folder, *FLOOR))
        for command, arguments in started.items():
            taken_s[command].append(start(folder, *arguments))
    floor_s = median(taken_s[FLOOR])
    ratios = {bound.command[0]: median(taken_s[bound.command]) / floor_s for bound in BOUNDS}

    bounds = {bound.command[0]: bound.ratio for bound in BOUNDS}
    assert [name for name in ratios if ratios[name] > bounds[name]] == [], ratios


def test_an_unneeded_module_is_detected(folder: Path) -> None:
    """A workflow in YAML loads yaml when it is read."""
    (folder / "three.yaml").write_text(json.dumps(THREE))

    assert modules(folder, ["validate", "three.yaml"]) & UNNEEDED == {"yaml"}


def modules(folder: Path, command: Sequence[str]) -> set[str]:
    """Returns the names of all modules that a command has loaded when it ends."""
    file = folder / "modules.txt"
    start(folder, "-c", COUNTING, str(file), *command)
    return set(file.read_text().splitlines())


def start(folder: Path, *arguments: str) -> float:
    """Runs a Python process and returns its processor time in seconds."""
    environment = clean_environment()
    # With this variable, each process would compile all modules again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before_s = children_s()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return children_s() - before_s


def children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
