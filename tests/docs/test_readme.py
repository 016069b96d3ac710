"""README.md: its examples run, and its figures are those of the last benchmark."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.benchmark_figures import check_cells
from tests.docs.console import commands_of, matches
from tests.docs.page_commands import PageCommands
from tests.docs.test_examples import NAMES, session_of
from tests.e2e.program import DEADLINE_S, clean_environment

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The engines in the README table, with their names in bench/results.md.
JOBS = {
    "Runnel, SQLite": "sync sqlite x4",
    "DBOS, SQLite with WAL": "peer dbos-sqlite-wal",
    "Runnel, SQLite, `power`": "sync sqlite-power x4",
    "DBOS, SQLite as it comes": "peer dbos-sqlite",
    "DBOS, PostgreSQL": "peer dbos-postgres",
    "Runnel, Redis and PostgreSQL": "sync servers 1w x4",
    "Celery, Redis": "peer celery",
    "Temporal, development server": "peer temporal",
}
WORKLOADS = {
    "diamond": "executions per second",
    "chain": "edge, ms, p50",
    "fan": "fan 1000, seconds",
}
NUMBERS = {15: "Fifteen", 16: "Sixteen", 17: "Seventeen", 18: "Eighteen", 19: "Nineteen"}
BROKEN = """\
name: broken
nodes:
  - {id: a, handler: output, dependencies: [b]}
  - {id: b, handler: output, dependencies: [a]}
  - {id: c, handler: output, config: {x: "{{ fetch.result }}"}}
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


README_COMMANDS = [command for block in blocks("console") for command in commands_of(block)]


def test_the_first_workflow_says_hello(tmp_path: Path, program_forks: PageCommands) -> None:
    (document,) = [block for block in blocks("yaml") if block.startswith("# hello.yaml")]
    (tmp_path / "hello.yaml").write_text(document)

    done = program_forks.run(["run", "hello.yaml", "--input", "name=Ada"], tmp_path)

    assert done.code == 0
    assert done.out.strip() in README


def test_a_function_of_yours_is_a_node(tmp_path: Path, program_forks: PageCommands) -> None:
    (node,) = [block for block in blocks("yaml") if "my_steps" in block]
    (tmp_path / "own.yaml").write_text(
        f"name: own\nnodes:\n  - {{id: who, handler: input}}\n{node}"
    )
    (tmp_path / "my_steps.py").write_text("def write_report(who):\n    return f'about {who}'\n")

    done = program_forks.run(["run", "own.yaml", "--input", "name=Ada"], tmp_path)

    assert done.out == '"about Ada"\n', done.err


def test_the_first_decorated_workflow_is_short_and_says_hello(
    tmp_path: Path, program_forks: PageCommands
) -> None:
    (program,) = [block for block in blocks("python") if block.startswith("# loud.py")]
    (tmp_path / "loud.py").write_text(program)

    done = program_forks.run(["run", "loud.py", "--input", "name=Ada"], tmp_path)

    assert done.code == 0, done.err
    assert f"{done.out.strip()}\n```" in README


CALL_SERVICE = """
import runnel
from fastapi.testclient import TestClient
from service import app

with TestClient(app) as client:
    response = client.post("/greetings/Ada")
    execution = response.json()
    print(response.status_code, client.portal.call(app.state.engine.result, execution))
"""


def test_a_service_runs_the_first_decorated_workflow(tmp_path: Path) -> None:
    for program in blocks("python"):
        (tmp_path / program.split()[1]).write_text(program)

    done = subprocess.run(
        [sys.executable, "-c", CALL_SERVICE],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.stdout == "202 HELLO ADA!\n", done.stderr
    assert len([line for line in program.splitlines()[1:] if line]) <= 12


def test_a_broken_workflow_is_refused_in_the_words_of_the_readme(
    tmp_path: Path, program_forks: PageCommands
) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)

    done = program_forks.run(["validate", "broken.yaml"], tmp_path)

    assert done.code == 2
    assert done.err.strip() in README


def test_the_demo_prints_what_the_readme_shows() -> None:
    (command,) = commands_of(session_of("demo.yaml"))  # test_examples.py runs it

    assert command.line in README
    assert f"{command.printed.strip()}\n```" in README


def test_every_example_is_counted() -> None:
    assert NUMBERS[len(NAMES)] in README


def test_the_picture_is_what_the_command_draws(tmp_path: Path, program_forks: PageCommands) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (graph,) = [command for command in README_COMMANDS if command.line.startswith("runnel graph")]

    done = program_forks.run(graph.line.split()[1:], tmp_path)

    assert matches(graph.printed, done.out), done.out


@pytest.mark.parametrize(("engine", "job"), JOBS.items())
def test_the_figures_of_an_engine_are_those_of_the_last_benchmark(engine: str, job: str) -> None:
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {engine} |")]

    figures = [f"{workload} {job}: {figure}" for workload, figure in WORKLOADS.items()]
    check_cells(row.strip("|").split("|")[2:], figures)


def test_both_commands_are_make_targets_and_ci_calls_the_second() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")

    assert "make demo" in README
    assert "make test" in README
    assert re.search(r"^demo:", makefile, re.MULTILINE)
    assert "exec make test" in ci
    assert os.access(ROOT / ".ci/run", os.X_OK)
