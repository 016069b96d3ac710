"""A child that cleans up after its parent has ended is waited for, found and resumed."""

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


def calling(name: str, function: str, *parents: str, **args: str) -> dict[str, Any]:
    config = {"function": f"tidying:{function}", "args": args}
    return {"id": name, "handler": "python", "dependencies": list(parents), "config": config}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """`parent` fails as soon as its child runs; the clean-up of the child waits for a gate."""
    program = Program(tmp_path)
    (tmp_path / "tidying.py").write_text(STEPS)
    began, gate = str(tmp_path / "began"), str(tmp_path / "gate")
    tidy = {"file": str(program.log), "gate": gate}
    child = {
        "name": "child",
        "nodes": [
            calling("hold", "hold", began=began),
            {**calling("one", "tidy", "hold", said="one", **tidy), "run_when": "all_settled"},
            {**calling("two", "tidy", "one", said="two", **tidy), "run_when": "all_settled"},
        ],
    }
    kid = {"id": "kid", "handler": "workflow", "config": {"definition": child}}
    nodes = [kid, calling("boom", "fail_after", began=began)]
    (tmp_path / "parent.json").write_text(json.dumps({"name": "parent", "nodes": nodes}))
    return program


@pytest.fixture
async def tidying(program: Program) -> AsyncIterator[RunningProgram]:
    """The parent has failed, and its child cleans up."""
    async with program.running("run", "parent.json") as running:
        await running.says("waits for the clean-up of child execution")
        yield running


def root_of(running: RunningProgram) -> str:
    return running.lines[0].split()[1]


def child_of(running: RunningProgram) -> str:
    return f"{root_of(running)}.kid.1"


def open_gate(program: Program) -> None:
    (program.folder / "gate").touch()


def states(program: Program) -> dict[str, str]:
    found = program.documents("list", "--all")
    return {each["workflow"]: each["status"] for each in found}


async def kill(running: RunningProgram) -> None:
    running.send(signal.SIGKILL)
    await running.ends()


async def test_a_run_ends_when_its_children_have_cleaned_up(
    program: Program, tidying: RunningProgram
) -> None:
    before = states(program)
    open_gate(program)
    code, _, _ = await tidying.ends()

    assert before == {"parent": "FAILED", "child": "RUNNING"}
    assert states(program) == {"parent": "FAILED", "child": "CANCELLED"}
    assert (code, program.log.read_text()) == (1, "one\ntwo\n")
    assert tidying.lines[-1] == (
        f"parent failed, waits for the clean-up of child execution {child_of(tidying)}"
    )


async def test_an_interrupted_clean_up_is_left_to_resume(
    program: Program, tidying: RunningProgram
) -> None:
    tidying.send(signal.SIGINT)
    await tidying.says("stopping")
    tidying.send(signal.SIGINT)
    code, _, err = await tidying.ends()

    assert code == 130
    assert f"interrupted; continue with: runnel resume {root_of(tidying)}" in err


async def test_stuck_lists_a_child_that_has_outlived_its_parent(
    program: Program, tidying: RunningProgram
) -> None:
    owned = program.documents("list", "--stuck")
    await kill(tidying)
    orphaned = program.documents("list", "--stuck")

    child = child_of(tidying)
    assert [each["execution_id"] for each in owned + orphaned] == [child, child]
    assert [each["node"] for each in orphaned[0]["waits"]] == ["one"]
    assert orphaned[0]["commands"] == [f"runnel resume {child}"]


async def test_stuck_lists_a_child_only_by_its_parent_while_that_runs(program: Program) -> None:
    waiting = {"id": "wait", "handler": "wait_for_signal", "config": {"signal": "go"}}
    child = {"name": "child", "nodes": [waiting]}
    nodes = [{"id": "kid", "handler": "workflow", "config": {"definition": child}}]
    (program.folder / "nested.json").write_text(json.dumps({"name": "nested", "nodes": nodes}))
    async with program.running("run", "nested.json") as running:
        await running.says("kid: waits for child execution")
        await kill(running)

    by_parent = program.documents("list", "--stuck")
    with_children = program.documents("list", "--stuck", "--all")

    assert [each["workflow"] for each in by_parent] == ["nested"]
    assert {each["workflow"] for each in with_children} == {"nested", "child"}


@pytest.mark.parametrize("which", ["all", "root", "child"])
async def test_the_clean_up_of_a_killed_process_is_resumed(
    program: Program, tidying: RunningProgram, which: str
) -> None:
    await kill(tidying)
    open_gate(program)

    named = {"all": [], "root": [root_of(tidying)], "child": [child_of(tidying)]}[which]
    resumed = program.documents("resume", *named)

    found = [(each["execution_id"], each["status"]) for each in resumed]
    assert found == [(child_of(tidying), "CANCELLED")]
    assert program.log.read_text() == "one\ntwo\n"


async def test_a_resumed_run_too_ends_when_its_children_have_cleaned_up(program: Program) -> None:
    gated = calling("late", "fail_after", began=str(program.folder / "late"))
    document = json.loads((program.folder / "parent.json").read_text())
    document["nodes"][1] = gated
    (program.folder / "late.json").write_text(json.dumps(document))
    async with program.running("run", "late.json") as running:
        await running.says("late: started")
        await kill(running)

    async with program.running("resume") as resumed:
        await resumed.says("late: started")
        (program.folder / "late").touch()
        await resumed.says("waits for the clean-up of child execution")
        open_gate(program)
        code, _, _ = await resumed.ends()

    assert (code, program.log.read_text()) == (1, "one\ntwo\n")
    assert states(program) == {"parent": "FAILED", "child": "CANCELLED"}
