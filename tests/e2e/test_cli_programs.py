"""No other process resumes the executions of a killed WorkflowExecutor."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.program import DEADLINE_S, Program, clean_environment

pytestmark = pytest.mark.e2e

KILLED = 9
SCRIPT = """
import asyncio
import os
from runnel import WorkflowDAG, WorkflowExecutor

async def first(_ctx):
    return 1

async def die(_ctx):
    os._exit(9)

dag = WorkflowDAG("pipeline").add_step("first", first).add_step("last", die, depends_on=["first"])
asyncio.run(WorkflowExecutor(data_dir=".runnel").execute(dag, {}))
"""
REASON = (
    "the execution ran inside a program (WorkflowExecutor, or an interactive session) and can't be "
    "resumed here"
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Returns a folder with a data directory and an execution whose program was killed."""
    program = Program(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=clean_environment(),
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == KILLED
    return program


def test_stuck_says_that_the_execution_cannot_be_resumed(program: Program) -> None:
    [stuck] = program.documents("list", "--stuck")
    shown = program.run("list", "--stuck").stdout

    assert stuck["commands"] == [f"runnel cancel {stuck['execution_id']} --force"]
    assert f"· {REASON}" in shown
    assert "resume " not in shown


def test_resume_skips_the_execution(program: Program) -> None:
    [killed] = program.documents("list")

    without_id = program.run("resume")
    by_id = program.run("resume", "@last")

    sentence = f"execution {killed['execution_id']}: {REASON}; end it with: runnel cancel"
    assert (without_id.returncode, by_id.returncode) == (0, 1)
    assert without_id.stderr.startswith(sentence)
    assert by_id.stderr.startswith(sentence)
    assert program.documents("list")[0]["status"] == "RUNNING"


async def test_watch_says_that_the_execution_cannot_be_resumed(program: Program) -> None:
    async with program.running("watch", "@last") as watching:
        line = await watching.read_until("no process runs this execution now")

    assert REASON in line


async def test_resume_takes_over_other_executions(program: Program) -> None:
    async with program.running("run", "tidied.json") as running:
        await running.read_until("approve: continue with")
    program.run("signal", "@last", "approve")

    program.run("resume")

    states = {execution["workflow"]: execution["status"] for execution in program.documents("list")}
    assert states == {"tidied": "COMPLETED", "pipeline": "RUNNING"}


def test_the_suggested_command_ends_the_execution(program: Program) -> None:
    [command] = program.documents("list", "--stuck")[0]["commands"]

    program.run(*command.split()[1:])

    assert program.documents("list")[0]["status"] == "CANCELLED"
