"""`runnel top` shows an overview, once or until a signal."""

import os
import pty
import select
import signal
from pathlib import Path

import pytest

from tests.e2e.program import DEADLINE_S, Program
from tests.fork_server import Streams

pytestmark = pytest.mark.e2e

LEAVES_SCREEN = b"\x1b[?1049l"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.run("run", "failing.json")
    return program


def test_the_overview_is_printed_once_without_a_terminal(program: Program) -> None:
    done = program.run("top")

    sections = done.stdout.split("\n\n")
    assert done.returncode == 0
    assert "0 running  0 pending  1 dead letter (runnel dlq list)" in sections[0]
    assert sections[1] == "under way\n  nothing"
    assert "failing   ✗ FAILED" in sections[2]
    assert sections[3].strip() == "processes that run executions\n  none"


def test_json_is_one_object_with_the_whole_overview(program: Program) -> None:
    (seen,) = program.documents("top")

    (ended,) = seen["ended"]
    assert (ended["workflow"], ended["status"]) == ("failing", "FAILED")
    assert (seen["running"], seen["pending"], seen["dead_letters"]) == (0, 0, 1)
    assert (seen["under_way"], seen["queues"], seen["workers"]) == ([], None, None)


def test_an_empty_folder_is_reported_as_having_no_data(tmp_path: Path) -> None:
    done = Program(tmp_path).run("top", "--once")

    assert (done.returncode, done.stdout) == (0, "")
    assert "no executions: there is no data" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_is_redrawn_until_a_signal_and_then_restored(
    program: Program, number: signal.Signals
) -> None:
    controller, terminal = pty.openpty()
    streams = Streams(terminal, terminal, terminal)
    process = program.begin("top", "--every", "0.2", streams=streams, TERM="xterm-256color")
    os.close(terminal)
    written = b""
    while written.count(b"runnel top") < 3 and select.select([controller], [], [], DEADLINE_S)[0]:
        written += os.read(controller, 65_536)
    process.send(number)
    while select.select([controller], [], [], DEADLINE_S)[0]:
        try:
            written += os.read(controller, 65_536)
        except OSError:  # the other end is closed
            break
    os.close(controller)

    assert process.wait(DEADLINE_S) == 0
    assert written.count(b"runnel top") >= 3
    assert LEAVES_SCREEN in written
    assert b"Traceback" not in written
