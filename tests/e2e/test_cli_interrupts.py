"""Ctrl-C ends `runnel` at every stage of a command."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.program import DEADLINE_S, Program
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

STEPS = """
import os
import signal
from threading import Event

async def block():
    print("the loop is blocked", flush=True)
    Event().wait(600)

def end_a_fork():
    hears, says = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(says, b"alive")
        while True:
            Event().wait(0.01)
    os.read(hears, 5)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
AT_IMPORT = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "rude.py").write_text(STEPS)
    for name in ("block", "end_a_fork"):
        node = {"id": "only", "handler": "python", "config": {"function": f"rude:{name}"}}
        document = {"name": name, "nodes": [node]}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return Program(tmp_path)


async def test_the_third_signal_ends_a_run_whose_loop_is_blocked(program: Program) -> None:
    async with program.running("run", "block.json") as running:
        await running.read_until("the loop is blocked")

        def is_ended_by_signals() -> bool:
            # `running.send` could consume the exit code that `running.code` waits for.
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGINT)
            return running.code is not None

        await wait_until(is_ended_by_signals, DEADLINE_S)

    assert running.code == 130
    assert program.documents("list")[0]["status"] == "RUNNING"


def test_a_process_that_user_code_forks_is_ended_by_one_signal(program: Program) -> None:
    document = program.documents("run", "end_a_fork.json")[0]

    assert document["nodes"]["only"]["output"] == -signal.SIGTERM


def test_an_interrupt_before_commands_are_imported_prints_nothing(program: Program) -> None:
    early = program.folder / "early"
    early.mkdir()
    (early / "typer.py").write_text(AT_IMPORT)
    path = os.pathsep.join([str(early), os.environ.get("PYTHONPATH", "")])

    done = program.run_started("list", PYTHONPATH=path)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_while_functions_are_imported_prints_no_traceback(program: Program) -> None:
    (program.folder / "steps.py").write_text(f"{AT_IMPORT}\ndef boom(): pass")

    done = program.run("run", "failing.json")

    assert done.returncode == 130
    assert "Traceback" not in done.stderr
