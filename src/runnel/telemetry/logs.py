"""The Telemetry port as log lines: one for each decision, its name first, its ids as fields."""

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from runnel.core import events as e
from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.ids import NO_ITEM, TaskToken
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.ports import telemetry as names
from runnel.ports.store import ExecutionHeader
from runnel.ports.telemetry import NullTelemetry
from runnel.telemetry.redaction import Redactor, TextMask

# The level of each event. An operator has to look at a warning; an error does not pass by itself.

_ERROR_EVENTS = (names.ARCHIVE_SET_ASIDE, names.ARCHIVE_FENCED, names.ARCHIVE_GAP)
_WARNING_EVENTS = (
    names.COMMAND_POISONED,
    names.MESSAGE_UNREADABLE,
    names.PARTITION_LOST,
    names.STORE_FAILED,
    names.THREAD_ABANDONED,
    names.ARCHIVE_LATE,
    names.WORKER_DEAD,
    names.ORCHESTRATOR_DEAD,
    names.TASKS_UNSERVED,
    names.WORKERS_MISSING,
    names.EXECUTION_REPAIRED,
    names.INBOX_STALE,
    names.EXECUTION_FAILED,
    names.SETTING_UNKNOWN,
    names.SCHEDULE_MISSED,
    names.SCHEDULE_FAILED,
)
_DEBUG_EVENTS = (
    names.TASK_STARTED,
    names.TASK_LOST,
    names.REPORT_REFUSED,
    names.HANDLER_METRIC,
    names.NODE_SETTLED,
    names.EXECUTION_STARTED,
)
LEVELS: Mapping[str, int] = {
    **dict.fromkeys(_ERROR_EVENTS, logging.ERROR),
    **dict.fromkeys(_WARNING_EVENTS, logging.WARNING),
    **dict.fromkeys(_DEBUG_EVENTS, logging.DEBUG),
}


def get_level(name: str) -> int:
    return LEVELS.get(name, logging.INFO)


LOGGER_NAME = "runnel"
_log = logging.getLogger(LOGGER_NAME)

_SETTLED_EVENTS = (e.NodeCompleted, e.NodeFailed, e.NodeSkipped, e.NodeCancelled)


class LogTelemetry(NullTelemetry):
    """Writes to the logger `runnel`; an event below its level costs one comparison.

    It writes no line when a task ends, because the node's own line follows, and none for a
    measurement: those would be most of a log. A value that is too high is reported as an event.
    """

    def event(self, name: str, **fields: object) -> None:
        level = get_level(name)
        if _log.isEnabledFor(level):
            # Without the search for the caller's file and line, which nobody wants to know here:
            # it was a quarter of the time of a line.
            record = logging.LogRecord(LOGGER_NAME, level, "", 0, name, None, None)
            record.event, record.fields = name, fields
            _log.handle(record)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        """The end of an execution is told by its header; its nodes are told one by one below."""
        if header is not None and header.state in FINAL_EXECUTION_STATES:
            self._log_end(header)
        if _log.isEnabledFor(logging.DEBUG):
            for event in events:
                self._log_detail(execution_id, event)

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            self.event(names.TASK_STARTED, worker=worker, **_build_id_fields(task.token))

    def _log_end(self, header: ExecutionHeader) -> None:
        is_failure = header.state is ExecutionState.FAILED
        name = names.EXECUTION_FAILED if is_failure else names.EXECUTION_FINISHED
        if not _log.isEnabledFor(get_level(name)):
            return
        began = header.started_at or header.created_at
        fields: dict[str, object] = {
            "execution_id": header.execution_id,
            "workflow": header.workflow,
            "state": str(header.state),
            "took_s": round((header.finished_at or began) - began, 3),
        }
        self.event(name, **fields, **({"error": header.error} if header.error else {}))

    def _log_detail(self, execution_id: str, event: AnyEvent) -> None:
        if isinstance(event, e.ExecutionStarted):
            self.event(names.EXECUTION_STARTED, execution_id=execution_id)
        elif isinstance(event, _SETTLED_EVENTS):
            fields: dict[str, object] = {"execution_id": execution_id, "node_id": event.node}
            if event.item != NO_ITEM:
                fields["item"] = event.item
            self.event(names.NODE_SETTLED, **fields, how=type(event).__name__)


def _build_id_fields(token: TaskToken) -> dict[str, object]:
    ids: dict[str, object] = {
        "execution_id": token.execution_id,
        "node_id": token.node_id,
        "attempt": token.attempt,
    }
    return ids if token.item == NO_ITEM else {**ids, "item": token.item}


# The fields that every record has; all others were given by the caller of the logger.
_STANDARD_RECORD_FIELDS = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event", "fields"}
)


class _RedactingFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def _collect_fields(self, record: logging.LogRecord) -> dict[str, object]:
        """Those of an event, or the extras of an ordinary record; without secrets and Nones."""
        fields: dict[str, object] = getattr(record, "fields", None) or {
            key: value for key, value in vars(record).items() if key not in _STANDARD_RECORD_FIELDS
        }
        return {
            self._redactor.redact_text(key): self._redactor.redact_value(key, value)
            for key, value in fields.items()
            if value is not None
        }

    def _format_message(self, record: logging.LogRecord) -> str:
        event: object = getattr(record, "event", None)
        return self._redactor.redact_text(str(event or record.getMessage()))

    def _format_traceback(self, record: logging.LogRecord) -> str:
        if record.exc_info is None or record.exc_info[0] is None:
            return ""
        return self._redactor.redact_text(self.formatException(record.exc_info))


class JsonFormatter(_RedactingFormatter):
    """`at`, `level`, `event` (or `message` and `logger`), what the process is, then the fields."""

    def __init__(self, redactor: Redactor, process_fields: dict[str, str]) -> None:
        super().__init__(redactor)
        self._process_fields = process_fields

    def format(self, record: logging.LogRecord) -> str:
        is_event = getattr(record, "event", None) is not None
        logger = {} if is_event else {"logger": record.name}
        line: dict[str, object] = {
            **self._collect_fields(record),
            "at": _format_utc(record.created),
            "level": record.levelname.lower(),
            "event" if is_event else "message": self._format_message(record),
            **logger,
            **self._process_fields,
        }
        first = ("at", "level", "event", "message")
        ordered = {key: line.pop(key) for key in first if key in line}
        trace = self._format_traceback(record)
        if trace:
            line["traceback"] = trace
        return msgspec.json.encode(ordered | line, enc_hook=str).decode()


class TextFormatter(_RedactingFormatter):
    """`12:03:04 warning store.failed call=renew error=…`, in the local time."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{key}={value}" for key, value in self._collect_fields(record).items())
        parts = [at, f"{record.levelname.lower():<7}", self._format_message(record), fields]
        trace = self._format_traceback(record)
        return " ".join(part for part in parts if part) + (f"\n{trace}" if trace else "")


def _format_utc(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1_000:03}Z"


def configure_logging(
    *,
    format_: Literal["auto", "human", "json"],
    level: str,
    secrets: Iterable[str] = (),
    hide: TextMask | None = None,
    process_fields: dict[str, str] | None = None,
) -> None:
    """All loggers of this process, user code's too; `auto` is human on a terminal, else JSON.

    No line shows `secrets`, nor what `hide` takes out; `process_fields` says in each JSON line
    which process it is.
    """
    logging.raiseExceptions = False  # a closed stderr is no reason to fail
    is_human = format_ == "human" or (format_ == "auto" and sys.stderr.isatty())
    redactor = Redactor(secrets, hide=hide)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        TextFormatter(redactor) if is_human else JsonFormatter(redactor, process_fields or {})
    )
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
