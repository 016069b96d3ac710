"""Log lines: events with ids, as JSON and as text, with secrets masked."""

import json
import logging
from collections.abc import Iterator

import msgspec
import pytest

from runnel.cli.session.run_locally import HANDLER_LOGGER, show_logs
from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent, ExecutionStarted, NodeCompleted, NodeFailed
from runnel.core.ids import ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT
from runnel.ports import telemetry as names
from runnel.ports.store import ExecutionHeader
from runnel.telemetry.logs import JsonFormatter, LogTelemetry, TextFormatter, configure_logging
from runnel.telemetry.redaction import Redactor

TOKEN = TaskToken(
    execution_id=ExecutionId("e1"), node_id=NodeId("a"), item=3, attempt=2, nonce=Nonce("n")
)
TASK = TaskMessage(
    token=TOKEN,
    handler="work",
    queue="tasks:work",
    config=msgspec.Raw(b"{}"),
    execution_input=EMPTY_OBJECT,
    workflow="w",
    version=1,
    execution_started_at=1.0,
    timeout_s=1.0,
    issued_at=1.0,
)


class CapturedLog(logging.Handler):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def documents(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def captured() -> Iterator[CapturedLog]:
    handler = CapturedLog(JsonFormatter(Redactor(["geheim", "83726150"]), {"role": "worker"}))
    logger = logging.getLogger("runnel")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def header(state: ExecutionState, **fields: object) -> ExecutionHeader:
    return ExecutionHeader(
        execution_id=ExecutionId("e1"),
        workflow="w",
        version=1,
        definition="d",
        state=state,
        created_at=1.0,
        started_at=2.0,
        finished_at=3.5,
        **fields,  # type: ignore[arg-type]  # a few fields by name
    )


def test_an_event_is_one_json_object_with_its_name_its_fields_and_its_process(
    captured: CapturedLog,
) -> None:
    LogTelemetry().event(names.PARTITION_ACQUIRED, partition=3, epoch=7)

    (line,) = captured.documents
    assert str(line.pop("at")).endswith("Z")
    assert line == {
        "level": "info",
        "event": "partition.acquired",
        "partition": 3,
        "epoch": 7,
        "role": "worker",
    }


def test_the_start_of_a_task_is_logged_with_execution_and_node(captured: CapturedLog) -> None:
    LogTelemetry().started(TASK, "worker-1", 1.0)

    (line,) = captured.documents
    ids = {key: line[key] for key in ("execution_id", "node_id", "item", "attempt")}
    assert ids == {"execution_id": "e1", "node_id": "a", "item": 3, "attempt": 2}
    assert (line["event"], line["level"]) == ("task.started", "debug")


def test_the_end_of_an_execution_is_logged_and_a_failure_is_a_warning(
    captured: CapturedLog,
) -> None:
    logs = LogTelemetry()
    logs.committed("e1", 3.5, [], header(ExecutionState.COMPLETED))
    logs.committed("e1", 3.5, [], header(ExecutionState.FAILED, error="ValueError: it broke"))

    done, failed = captured.documents
    assert (done["event"], done["level"], done["took_s"]) == ("execution.finished", "info", 1.5)
    assert (failed["event"], failed["level"]) == ("execution.failed", "warning")
    assert failed["error"] == "ValueError: it broke"


def test_a_duplicate_run_is_logged_as_a_warning(captured: CapturedLog) -> None:
    LogTelemetry().event(
        names.REPORT_REFUSED, worker="w", execution_id="e1", node_id="a", attempt=1
    )

    (line,) = captured.documents
    assert (line["event"], line["level"], line["node_id"]) == ("report.refused", "warning", "a")


def test_every_settled_node_is_logged_at_debug_level(captured: CapturedLog) -> None:
    error = ErrorInfo(type="ValueError", message="it broke")
    events: list[AnyEvent] = [
        ExecutionStarted(),
        NodeCompleted(node=NodeId("a"), output=EMPTY_OBJECT),
        NodeFailed(node=NodeId("b"), item=4, error=error),
    ]
    LogTelemetry().committed("e1", 1.0, events, None)

    assert [
        (line["event"], line.get("node_id"), line.get("item")) for line in captured.documents
    ] == [
        ("execution.started", None, None),
        ("node.settled", "a", None),
        ("node.settled", "b", 4),
    ]


def test_log_lines_of_user_code_contain_the_ids_of_the_task(captured: CapturedLog) -> None:
    ids = {"execution_id": "e1", "node_id": "a", "item_index": None}
    logging.getLogger("runnel.handler.python").info("half of it", extra=ids)

    (line,) = captured.documents
    del line["at"]
    assert line == {
        "level": "info",
        "message": "half of it",
        "execution_id": "e1",
        "node_id": "a",
        "logger": "runnel.handler.python",
        "role": "worker",
    }


def test_names_of_extra_fields_are_redacted(captured: CapturedLog) -> None:
    extra = {"event": "geheim", "geheim": 1}
    logging.getLogger("runnel.handler.python").info("x", extra=extra)

    (line,) = captured.documents
    assert (line["event"], line["***"]) == ("***", 1)
    assert "geheim" not in captured.lines[0]


SECRETS = [
    ("message", "connect to redis://ada:xyz@host/0", "connect to redis://***@host/0"),
    ("message", "the word is geheim", "the word is ***"),
    ("password", "anything", "***"),
    ("api_key", "anything", "***"),
    ("config", {"db": {"Passwd": "x", "port": 5}}, {"db": {"Passwd": "***", "port": 5}}),
    ("urls", ["http://a:b@c", "geheim"], ["http://***@c", "***"]),
    ("token", "fencing-7", "fencing-7"),
    ("count", 7, 7),
    ("count", 83726150, "***"),
    ("found", {"geheim": 1}, {"***": 1}),
]


@pytest.mark.parametrize(("name", "value", "expected"), SECRETS)
def test_secrets_are_masked_by_value_by_name_and_in_urls(
    captured: CapturedLog, name: str, value: object, expected: object
) -> None:
    LogTelemetry().event(names.STORE_FAILED, error="x", **{name: value})

    (line,) = captured.documents
    assert line[name] == expected


def test_a_traceback_contains_no_secret(captured: CapturedLog) -> None:
    try:
        raise ValueError("geheim")
    except ValueError:
        logging.getLogger("runnel").exception("it failed")

    (line,) = captured.documents
    assert "ValueError: ***" in str(line["traceback"])
    assert "geheim" not in captured.lines[0].replace('raise ValueError("geheim")', "")


def test_values_that_json_cannot_represent_are_logged_as_text(captured: CapturedLog) -> None:
    LogTelemetry().event(names.STORE_FAILED, error=ValueError("x"), where={1: {2}})

    (line,) = captured.documents
    assert (line["error"], line["where"]) == ("x", {"1": [2]})


def test_the_human_format_has_time_level_name_and_fields() -> None:
    record = logging.makeLogRecord(
        {"levelname": "WARNING", "event": "worker.dead", "fields": {"worker": "w", "lost": 2}}
    )
    line = TextFormatter(Redactor()).format(record)

    assert line[9:] == "warning worker.dead worker=w lost=2"


@pytest.mark.parametrize(("format_", "is_json"), [("auto", True), ("json", True), ("human", False)])
def test_logs_go_to_stderr_in_the_requested_format(
    format_: str, is_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure_logging(format_=format_, level="info")  # type: ignore[arg-type]  # from a table
        logging.getLogger("mine").info("hello")
        logging.getLogger("mine").debug("too quiet")
    finally:
        root.handlers[:] = before
        root.setLevel(level)

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("{") is is_json
    assert "hello" in line


ABANDONED = (
    "execution e1, node 'a[3]': the code did not stop (timeout). Python can't end its thread, "
    "which runs until its function returns. Let the function check 'ctx.cancelled', make it async, "
    'or use mode="process"'
)
REFUSED = (
    "execution e1, node 'a': the result of attempt 2 was not used, because the task also ran "
    "elsewhere or its execution had ended"
)
SENTENCES = [
    (
        names.THREAD_ABANDONED,
        {"execution_id": "e1", "node_id": "a", "item": 3, "reason": "timeout"},
        ABANDONED,
    ),
    (
        names.STORE_FAILED,
        {"call": "claim", "error": "no answer from redis://me:geheim@host"},
        "the store does not respond: no answer from redis://***@host. Runnel tries again",
    ),
    (
        names.REPORT_REFUSED,
        {"execution_id": "e1", "node_id": "a", "item": None, "attempt": 2},
        REFUSED,
    ),
    (names.REPORT_REFUSED, {"execution_id": "e1"}, "report.refused execution_id=e1"),
    (names.WORKER_DEAD, {"worker": "w", "lost": 2}, "worker.dead worker=w lost=2"),
]


@pytest.mark.parametrize(("name", "fields", "sentence"), SENTENCES)
def test_an_event_is_a_sentence_in_the_log_of_a_program_and_on_the_command_line(
    name: str,
    fields: dict[str, object],
    sentence: str,
    *,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [caplog.handler])
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)  # show_logs sets it
    show_logs(lambda text: text)

    logging.getLogger(HANDLER_LOGGER).setLevel(logging.NOTSET)  # as before `show_logs`

    LogTelemetry().event(name, **fields)

    assert caplog.messages == [sentence]
    assert capsys.readouterr().err == f"warning: {sentence}\n"
