"""What a worker and its child processes say to each other: framed JSON over a socket.

Nothing is pickled: the arguments are JSON already, a function travels as its name, a result is
encoded by the process that made it, and an exception as what is reported of it.
"""

import signal
import struct
from typing import TypeAlias

import msgspec

from runnel.authoring.calls import ContextPlace
from runnel.authoring.context import Measurement
from runnel.core.effects import Task
from runnel.core.retry import ErrorInfo
from runnel.core.values import NO_DATA

HEADER = struct.Struct("!Q")
SOFT_TIMEOUT = signal.SIGUSR1


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`main` is the file of the parent's `__main__`, for functions that are defined there."""

    function: str
    main: str | None
    positional: list[msgspec.Raw]
    named: dict[str, msgspec.Raw]
    place: ContextPlace
    task: Task
    log_level: int


class Done(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Exactly one of the three is set; `skipped` is what the code said when it raised Skip."""

    output: msgspec.Raw = NO_DATA
    error: ErrorInfo | None = None
    skipped: str | None = None


class Logged(msgspec.Struct, frozen=True, tag=True):
    logger: str
    level: int
    message: str


class Measured(msgspec.Struct, frozen=True, tag=True):
    measurement: Measurement


Answer: TypeAlias = Done | Logged | Measured

_encoder = msgspec.json.Encoder()
_job_decoder = msgspec.json.Decoder(Job)
_answer_decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def frame(message: Job | Answer) -> bytes:
    body = _encoder.encode(message)
    return HEADER.pack(len(body)) + body


def decode_job(body: bytes) -> Job:
    return _job_decoder.decode(body)


def decode_answer(body: bytes) -> Answer:
    return _answer_decoder.decode(body)
