"""Commands wait for, list and resume a child execution that cleans up after its parent ended."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import Program, RunningProgram

pytestmark = pytest.mark.e2e

STEPS = """
import asyncio
from pathlib import Path

async def hold(began):
    Path(began).touch()
    await asyncio.Event().wait()

async def fail_after(began):
    while not Path(began).exists():
        await asyncio.sleep(0.02)
    raise ValueError("it broke")

async def tidy(file, gate, said):
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    with Path(file).open("a") as log:
        print(said, file=log)
"""


def make_node(name: str, function: str, *parents: str, **args: str) -> dict[str, Any]:
    config = {"function": f"tidying:{function}", "args": args}
    return {"id": name, "handler": "python", "dependencies": list(parents), "config": config}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Returns a folder with the workflow `parent`.

    It fails as soon as its child runs. The clean-up of the child waits for a gate.
    """
    program = Program(tmp_path)
    (tmp_path / "tidying.py").write_text(STEPS)
    began, gate = str(tmp_path / "began"), str(tmp_path / "gate")
    tidy = {"file": str(program.log), "gate": gate}
    child = {
        "name": "child",
        "nodes": [
            make_node("hold", "hold", began=began),
            {**make_node("one", "tidy", "hold", said="one", **tidy), "run_when": "all_settled"},
            {**make_node("two", "tidy", "one", said="two", **tidy), "run_when": "all_settled"},
        ],
    }
    kid = {"id": "kid", "handler": "workflow", "config": {"definition": child}}
    nodes = [kid, make_node("boom", "fail_after", began=began)]
    (tmp_path / "parent.json").write_text(json.dumps({"name": "parent", "nodes": nodes}))
    return program


@pytest.fixture
async def tidying(program: Program) -> AsyncIterator[RunningProgram]:
    """Yields a run whose parent has failed and whose child cleans up."""
    async with program.running("run", "parent.json") as running:
        await running.read_until("waits for the clean-up of child execution")
        yield running


def get_root_id(running: RunningProgram) -> str:
    return running.lines[0].split()[1]


def get_child_id(running: RunningProgram) -> str:
    return f"{get_root_id(running)}.kid.1"


def open_gate(program: Program) -> None:
    (program.folder / "gate").touch()


def read_statuses(program: Program) -> dict[str, str]:
    executions = program.documents("list", "--all")
    return {execution["workflow"]: execution["status"] for execution in executions}


async def kill(running: RunningProgram) -> None:
    running.send(signal.SIGKILL)
    await running.wait()


async def test_a_run_ends_when_its_children_have_cleaned_up(
    program: Program, tidying: RunningProgram
) -> None:
    before = read_statuses(program)
    open_gate(program)
    code, _, _ = await tidying.wait()

    assert before == {"parent": "FAILED", "child": "RUNNING"}
    assert read_statuses(program) == {"parent": "FAILED", "child": "CANCELLED"}
    assert (code, program.log.read_text()) == (1, "one\ntwo\n")
    assert tidying.lines[-1] == (
        f"parent failed, waits for the clean-up of child execution {get_child_id(tidying)}"
    )


async def test_an_interrupted_clean_up_can_be_resumed(
    program: Program, tidying: RunningProgram
) -> None:
    tidying.send(signal.SIGINT)
    await tidying.read_until("stopping")
    tidying.send(signal.SIGINT)
    code, _, err = await tidying.wait()

    assert code == 130
    assert f"interrupted; continue with: runnel resume {get_root_id(tidying)}" in err


async def test_stuck_lists_a_child_that_has_outlived_its_parent(
    program: Program, tidying: RunningProgram
) -> None:
    owned = program.documents("list", "--stuck")
    await kill(tidying)
    orphaned = program.documents("list", "--stuck")

    child = get_child_id(tidying)
    assert [execution["execution_id"] for execution in owned + orphaned] == [child, child]
    assert [wait["node"] for wait in orphaned[0]["waits"]] == ["one"]
    assert orphaned[0]["commands"] == [f"runnel resume {child}"]


async def test_stuck_lists_only_the_parent_while_the_parent_runs(program: Program) -> None:
    waiting = {"id": "wait", "handler": "wait_for_signal", "config": {"signal": "go"}}
    child = {"name": "child", "nodes": [waiting]}
    nodes = [{"id": "kid", "handler": "workflow", "config": {"definition": child}}]
    (program.folder / "nested.json").write_text(json.dumps({"name": "nested", "nodes": nodes}))
    async with program.running("run", "nested.json") as running:
        await running.read_until("kid: waits for child execution")
        await kill(running)

    by_parent = program.documents("list", "--stuck")
    with_children = program.documents("list", "--stuck", "--all")

    assert [execution["workflow"] for execution in by_parent] == ["nested"]
    assert {execution["workflow"] for execution in with_children} == {"nested", "child"}


@pytest.mark.parametrize("which", ["all", "root", "child"])
async def test_the_clean_up_of_a_killed_process_is_resumed(
    program: Program, tidying: RunningProgram, which: str
) -> None:
    await kill(tidying)
    open_gate(program)

    named = {"all": [], "root": [get_root_id(tidying)], "child": [get_child_id(tidying)]}[which]
    resumed = program.documents("resume", *named)

    statuses = [(execution["execution_id"], execution["status"]) for execution in resumed]
    assert statuses == [(get_child_id(tidying), "CANCELLED")]
    assert program.log.read_text() == "one\ntwo\n"


async def test_a_resumed_run_also_ends_when_its_children_have_cleaned_up(program: Program) -> None:
    gated = make_node("late", "fail_after", began=str(program.folder / "late"))
    document = json.loads((program.folder / "parent.json").read_text())
    document["nodes"][1] = gated
    (program.folder / "late.json").write_text(json.dumps(document))
    async with program.running("run", "late.json") as running:
        await running.read_until("late: started")
        await kill(running)

    async with program.running("resume") as resumed:
        await resumed.read_until("late: started")
        (program.folder / "late").touch()
        await resumed.read_until("waits for the clean-up of child execution")
        open_gate(program)
        code, _, _ = await resumed.wait()

    assert (code, program.log.read_text()) == (1, "one\ntwo\n")
    assert read_statuses(program) == {"parent": "FAILED", "child": "CANCELLED"}
