"""Log records as lines: for a person at a terminal, or one JSON object each."""

import logging
from datetime import UTC, datetime

import msgspec

from runnel.telemetry.redaction import Redactor

# What every record has: the rest was given by whoever logged.
_STANDARD = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "event", "fields"}
)


class _Line(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        """Those of an event, or the extras of an ordinary record; without secrets and Nones."""
        given: dict[str, object] = getattr(record, "fields", None) or {
            key: value for key, value in vars(record).items() if key not in _STANDARD
        }
        return {
            self._redactor.text(key): self._redactor.value(key, value)
            for key, value in given.items()
            if value is not None
        }

    def _message(self, record: logging.LogRecord) -> str:
        event: object = getattr(record, "event", None)
        return self._redactor.text(str(event or record.getMessage()))

    def _traceback(self, record: logging.LogRecord) -> str:
        if record.exc_info is None or record.exc_info[0] is None:
            return ""
        return self._redactor.text(self.formatException(record.exc_info))


class JsonLine(_Line):
    """`at`, `level`, `event` (or `message` and `logger`), what the process is, then the fields."""

    def __init__(self, redactor: Redactor, about: dict[str, str]) -> None:
        super().__init__(redactor)
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        is_event = getattr(record, "event", None) is not None
        said = {} if is_event else {"logger": record.name}
        line: dict[str, object] = {
            **self._fields(record),
            "at": _utc(record.created),
            "level": record.levelname.lower(),
            "event" if is_event else "message": self._message(record),
            **said,
            **self._about,
        }
        first = ("at", "level", "event", "message")
        ordered = {key: line.pop(key) for key in first if key in line}
        trace = self._traceback(record)
        if trace:
            line["traceback"] = trace
        return msgspec.json.encode(ordered | line, enc_hook=str).decode()


class HumanLine(_Line):
    """`12:03:04 warning store.failed call=renew error=…`, in the local time."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{key}={value}" for key, value in self._fields(record).items())
        words = [at, f"{record.levelname.lower():<7}", self._message(record), fields]
        trace = self._traceback(record)
        return " ".join(word for word in words if word) + (f"\n{trace}" if trace else "")


def _utc(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1_000:03}Z"
