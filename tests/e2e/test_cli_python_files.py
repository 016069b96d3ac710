"""Workflows in Python files, run by `runnel run` and as scripts."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.app.private_servers.redis import RedisServer
from tests.e2e.program import DEADLINE_S, Program, clean_environment
from tests.redis_server import flush_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

FLOW = """
import asyncio
from pathlib import Path
import runnel
from runnel import task, workflow

print("imported")

@task
def note(notes: str, text: str) -> str:
    with Path(notes).open("a") as log:
        print(text, file=log)
    return text

@task
async def until(notes: str, gate: str) -> str:
    note(notes, "waiting")
    while not Path(gate).exists():
        await asyncio.sleep(0.02)
    return "opened"

@task
def join(parts: list) -> str:
    return " ".join(parts)

@workflow
def gated(notes: str, gate: str = "gate"):
    first = note(notes, "first")
    return join([first, until.after(first)(notes, gate), note.after(first)(notes, "second")])

@workflow
def short(words: list[str]):
    return join(words)

if __name__ == "__main__":
    print(gated.run_options(key="today").run("notes"))
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "flow.py").write_text(FLOW)
    return Program(tmp_path)


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def run_script(program: Program, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the file as a script; the script runs one execution by its key."""
    return subprocess.run(
        [sys.executable, "flow.py"],
        cwd=program.folder,
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def test_a_workflow_of_a_python_file_is_run_by_its_name(program: Program) -> None:
    done = program.run("run", "flow.py:short", "-i", 'words:=["a", "b"]')

    assert (done.returncode, done.stdout) == (0, '"a b"\n')
    assert "imported" in done.stderr


def test_a_python_file_is_validated_drawn_and_exported(program: Program) -> None:
    checked = program.run("validate", "flow.py:gated")
    drawn = program.run("graph", "flow.py:gated", "--mermaid")
    exported = program.run("export", "flow.py:gated")

    assert checked.stdout == "ok: 4 nodes, 3 layers\n"
    assert "n1 --> n3" in drawn.stdout
    (program.folder / "exported.yaml").write_text(exported.stdout)
    assert program.run("export", "exported.yaml").stdout == exported.stdout
    (program.folder / "gate").touch()
    done = program.run("run", "exported.yaml", "-i", "notes=notes")
    assert done.stdout == '"first opened second"\n'


def test_a_file_in_a_package_is_imported_with_its_package(program: Program) -> None:
    package = program.folder / "app" / "flows"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "words.py").write_text(
        "from runnel import task, workflow\nfrom . import signs\n"
        "@task\ndef shout(word): return word.upper() + signs.SIGN\n"
        "@workflow\ndef loud(word: str): return shout(word)\n"
    )
    (package / "signs.py").write_text("SIGN = '!'")

    done = program.run("run", "app/flows/words.py", "-i", "word=a")

    assert done.stdout == '"A!"\n', done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "flow.py"), "flow.py: the file has 2 workflows; choose one of: flow.py:gated, "),
        (("run", "flow.py:short"), "input: the field 'words' is missing"),
    ],
)
def test_a_wrong_call_is_reported_in_a_sentence(
    program: Program, arguments: tuple[str, ...], sentence: str
) -> None:
    done = program.run(*arguments)

    assert done.returncode == 2
    assert sentence in done.stderr


async def test_a_killed_run_of_a_python_file_is_resumed(program: Program) -> None:
    notes = program.folder / "notes"
    async with program.running("run", "flow.py:gated", "-i", "notes=notes") as running:
        await wait_until(lambda: "waiting" in read_lines(notes), DEADLINE_S)
        running.send(signal.SIGKILL)
        await running.wait()
    (program.folder / "gate").touch()

    done = await asyncio.to_thread(program.run, "resume")

    assert done.returncode == 0, done.stderr
    assert "first opened second" in done.stdout
    assert read_lines(notes).count("first") == 1  # its result was stored before the next node began


async def test_a_killed_script_continues_when_it_is_started_again(program: Program) -> None:
    notes = program.folder / "notes"
    process = subprocess.Popen(
        [sys.executable, "flow.py"], cwd=program.folder, env=clean_environment()
    )
    await wait_until(lambda: "waiting" in read_lines(notes), DEADLINE_S)
    process.kill()
    await asyncio.to_thread(process.wait)
    (program.folder / "gate").touch()

    for _ in range(2):  # the second start finds a completed execution
        done = await asyncio.to_thread(run_script, program)
        assert done.stdout.splitlines()[-1] == "first opened second", done.stderr
    assert read_lines(notes).count("first") == 1  # its result was stored before the next node began


async def test_workers_on_servers_find_the_functions_of_the_file(
    program: Program, shared_redis: RedisServer
) -> None:
    flush_server(shared_redis)
    (program.folder / "gate").touch()
    server = {"REDIS_URL": shared_redis.url}
    async with program.running("dev", "--app", "flow", "--port", "0", **server):
        by_command = await asyncio.to_thread(
            program.run, "run", "flow.py:gated", "-i", "notes=notes", "--json", **server
        )
        by_scripts = await asyncio.gather(
            *(asyncio.to_thread(run_script, program, **server) for _ in "ab")
        )

    assert json.loads(by_command.stdout)["output"] == "first opened second"
    for done in by_scripts:
        assert done.stdout.splitlines()[-1] == "first opened second", done.stderr
    notes = read_lines(program.folder / "notes")
    assert (notes.count("first"), notes.count("second")) == (2, 2)


TYPED = """
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from runnel import task, workflow

@dataclass
class Order:
    day: date
    total: Decimal

@task
def add(order: Order, more: Decimal) -> Order:
    return Order(order.day.replace(day=1), order.total + more)

@workflow
def typed(order: Order, more: Decimal = Decimal("0.10")) -> Order:
    return add(order, more)
"""


def test_typed_values_are_given_and_printed_as_json(program: Program) -> None:
    (program.folder / "typed.py").write_text(TYPED)

    done = program.run("run", "typed.py", "-i", "order.day=2026-11-18", "-i", "order.total=1.20")

    assert json.loads(done.stdout) == {"day": "2026-11-01", "total": "1.30"}, done.stderr


def test_a_wrong_typed_value_is_refused_with_its_path_and_nothing_is_stored(
    program: Program,
) -> None:
    (program.folder / "typed.py").write_text(TYPED)

    done = program.run("run", "typed.py", "-i", "order.day=2026-11-31", "-i", "order.total=1.2")

    assert done.returncode == 2
    assert done.stderr == (
        "error: the input does not fit workflow 'typed': 1 problem\n"
        "  - input.order.day: expected a text in the format 'date', got '2026-11-31'\n"
    )
    assert not (program.folder / ".runnel").exists()
