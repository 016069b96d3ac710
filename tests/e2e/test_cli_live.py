"""The live view of commands on a pseudo-terminal."""

import json
import os
import pty
import re
import select
import signal
from pathlib import Path

import pytest

from tests.e2e.program import DEADLINE_S, Program
from tests.fork_server import Streams

pytestmark = pytest.mark.e2e

ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
HIDES_CURSOR, SHOWS_CURSOR = b"\x1b[?25l", b"\x1b[?25h"
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def run_on_terminal(program: Program, *arguments: str, **environment: str) -> tuple[int, bytes]:
    """Returns the exit code, and all bytes that the command wrote to the terminal."""
    controller, terminal = pty.openpty()
    process = program.begin(
        *arguments,
        streams=Streams(terminal, terminal, terminal),
        **{"TERM": "xterm-256color", **environment},
    )
    os.close(terminal)
    written = b""
    while select.select([controller], [], [], DEADLINE_S)[0]:
        try:
            written += os.read(controller, 65_536)
        except OSError:  # the other end is closed
            break
    os.close(controller)
    return process.wait(DEADLINE_S), written


def split_lines(written: bytes) -> list[str]:
    """Returns the lines without escape sequences; a carriage return begins a new line, too."""
    return ESCAPE.sub(b"", written).decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")


def test_a_terminal_shows_one_line_per_node_and_then_the_output(program: Program) -> None:
    code, written = run_on_terminal(program, "run", "chain.json")

    lines = split_lines(written)
    assert code == 0
    assert any(line.startswith("✓ chain ") and "2/2" in line for line in lines)
    assert any(line.startswith("  ✓ a ") for line in lines)
    assert '  "y": 1' in lines
    assert COLOUR.search(written)


def test_a_terminal_shows_why_a_node_failed(program: Program) -> None:
    code, written = run_on_terminal(program, "run", "failing.json")

    text = "\n".join(split_lines(written))
    assert code == 1
    assert "✗ a" in text
    assert "ValueError: it broke" in text


def test_no_color_disables_colours(program: Program) -> None:
    _, written = run_on_terminal(program, "run", "chain.json", NO_COLOR="1")

    assert not COLOUR.search(written)


def test_a_dumb_terminal_gets_plain_lines(program: Program) -> None:
    _, written = run_on_terminal(program, "run", "chain.json", TERM="dumb")

    assert b"\x1b" not in written
    assert "a: started" in split_lines(written)


def test_a_list_fits_the_terminal(program: Program) -> None:
    program.run("run", "failing.json")

    _, written = run_on_terminal(program, "list", COLUMNS="90")

    lines = split_lines(written)
    assert all(len(line) <= 90 for line in lines)
    assert lines[1].endswith("…")
    assert COLOUR.search(written)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_leaves_the_cursor_visible(
    program: Program, number: signal.Signals
) -> None:
    node = {"id": "held", "handler": "wait_for_signal", "config": {"signal": "go"}}
    document = {"name": "held", "nodes": [node]}
    (program.folder / "held.json").write_text(json.dumps(document))
    controller, terminal = pty.openpty()
    streams = Streams(terminal, terminal, terminal)
    process = program.begin("run", "held.json", streams=streams, TERM="xterm-256color")
    os.close(terminal)
    written = b""
    while b"waits" not in written and select.select([controller], [], [], DEADLINE_S)[0]:
        written += os.read(controller, 65_536)
    process.send(number)
    while select.select([controller], [], [], DEADLINE_S)[0]:
        try:
            written += os.read(controller, 65_536)
        except OSError:  # the other end is closed
            break
    os.close(controller)

    assert process.wait(DEADLINE_S) != 0
    assert HIDES_CURSOR in written
    assert written.rfind(SHOWS_CURSOR) > written.rfind(HIDES_CURSOR)
