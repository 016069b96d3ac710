"""The child process of a worker, with the test as its parent."""

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runnel.authoring.calls import ContextPlace
from runnel.engine.worker.child_main import EXIT_PARENT_GONE
from runnel.engine.worker.child_process import (
    FRAME_HEADER,
    SOFT_TIMEOUT_SIGNAL,
    ChildJob,
    ChildMessage,
    JobResult,
    LogMessage,
    MetricMessage,
    decode_child_message,
    encode_frame,
)
from runnel.testing.clock import FakeClock
from tests.unit.engine.worker.worker_harness import WorkerHarness

HERE = "tests.integration.child_functions"
BOOT = "import sys; from runnel.engine.worker.child_main import main; main(*map(int, sys.argv[1:]))"
ENDS_S = 20


class ChildConnection:
    """A child process that takes `parent` for its parent, and the socket to it."""

    def __init__(self, parent: int) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOT, str(theirs.fileno()), str(parent)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=(theirs.fileno(),),
            )
        self._link.settimeout(ENDS_S)
        self._stream = self._link.makefile("rb")

    def ask(self, function: str, *positional: Any, **fields: Any) -> JobResult:
        """Sends a job and returns its result; drops the messages before it."""
        return self.listen(function, *positional, **fields)[-1]  # type: ignore[return-value]

    def listen(self, function: str, *positional: Any, **fields: Any) -> list[ChildMessage]:
        """Sends a job and returns all messages up to and including its result."""
        settings: dict[str, Any] = {
            "main": None,
            "place": ContextPlace.NONE,
            "task": WorkerHarness(FakeClock()).task("crunch", soft_timeout_s=1.5),
            **fields,
        }
        job = ChildJob(
            function=function,
            positional=[msgspec.Raw(msgspec.json.encode(value)) for value in positional],
            named={},
            log_level=logging.INFO,
            **settings,
        )
        self._link.sendall(encode_frame(job))
        messages = [self._receive()]
        while not isinstance(messages[-1], JobResult):
            messages.append(self._receive())
        return messages

    def hang_up(self) -> int:
        """Closes the connection and returns the exit code of the child."""
        self._stream.close()
        self._link.close()
        return self.process.wait(ENDS_S)

    def _receive(self) -> ChildMessage:
        (size,) = FRAME_HEADER.unpack(self._stream.read(FRAME_HEADER.size))
        return decode_child_message(self._stream.read(size))


@pytest.fixture
def child() -> Iterator[ChildConnection]:
    connection = ChildConnection(os.getpid())
    yield connection
    assert connection.hang_up() == EXIT_PARENT_GONE


def test_a_child_runs_jobs_in_turn_and_ends_with_its_connection(child: ChildConnection) -> None:
    squared, skipped = child.ask(f"{HERE}:square", 5), child.ask(f"{HERE}:skip")
    failed, not_json = child.ask(f"{HERE}:picky"), child.ask(f"{HERE}:not_json")
    unknown = child.ask(f"{HERE}:nobody")

    assert bytes(squared.output) == b"25"
    assert skipped.skipped == "nothing to do"
    assert str(failed.error) == "PickyError: very picky"
    assert "it holds a builtins.object" in str(not_json.error)
    assert "nobody" in str(unknown.error)


def test_a_child_sends_log_records_and_metrics_of_the_code(child: ChildConnection) -> None:
    measured, logged, done = child.listen(f"{HERE}:inputs", place=ContextPlace.NAMED)

    assert isinstance(measured, MetricMessage)
    assert (measured.measurement.name, measured.measurement.value) == ("depth", 2.5)
    assert isinstance(logged, LogMessage)
    assert (logged.level, logged.message) == (logging.WARNING, "from the child")
    assert isinstance(done, JobResult)


def test_odd_measurements_in_a_child_do_not_fail_the_task(child: ChildConnection) -> None:
    *sent, done = child.listen(f"{HERE}:measure_oddly", place=ContextPlace.NAMED)

    assert isinstance(done, JobResult)
    assert bytes(done.output) == b'"done"'
    measured = [message.measurement for message in sent if isinstance(message, MetricMessage)]
    assert [(item.kind, item.value, item.labels) for item in measured] == [
        ("invalid", 0.0, {}),
        ("value", 1.5, {"year": "2026"}),
        ("value", 1.0, {"file": "a\\udcff"}),
        ("invalid", 0.0, {}),
    ]


def test_a_soft_timeout_interrupts_only_running_code(child: ChildConnection) -> None:
    child.ask(f"{HERE}:square", 1)
    child.process.send_signal(SOFT_TIMEOUT_SIGNAL)
    untouched = child.ask(f"{HERE}:square", 2)
    reply = child.ask(f"{HERE}:soft_by_itself")

    assert bytes(untouched.output) == b"4"
    assert "soft timeout of 1.5 s" in bytes(reply.output).decode()


def test_the_script_of_the_parent_is_imported_once_and_not_as_main(
    child: ChildConnection, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "runs = []\ndef name():\n    runs.append(1)\n    return [__name__, len(runs)]\n"
    )

    first, second = (child.ask("__main__:name", main=str(script)) for _ in range(2))

    assert bytes(first.output) == b'["__runnel_main__",1]'
    assert bytes(second.output) == b'["__runnel_main__",2]'


def test_a_script_that_can_not_be_imported_fails_its_task(
    child: ChildConnection, tmp_path: Path
) -> None:
    failed = child.ask("__main__:name", main=str(tmp_path / "script.txt"))

    assert "can't be run again in a child process" in str(failed.error)


def test_a_child_whose_parent_has_already_ended_does_not_start() -> None:
    orphan = ChildConnection(parent=1)

    assert orphan.process.wait(ENDS_S) == EXIT_PARENT_GONE
    orphan.hang_up()
