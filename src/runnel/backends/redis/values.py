"""What is stored in Redis, as bytes and back: JSON, and never through Lua's."""

import msgspec

from runnel.core.codec import encode_message
from runnel.core.commands import Command, CreateExecution, TaskFailed, TaskLost
from runnel.core.effects import DeadLetter, Task, TimerKey
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, Token
from runnel.core.retry import ErrorInfo
from runnel.ports.store import Header, pending_header

_encoder = msgspec.json.Encoder()
_tokens = msgspec.json.Decoder(Token)
_tasks = msgspec.json.Decoder(Task)
_task_lists = msgspec.json.Decoder(list[Task])
_headers = msgspec.json.Decoder(Header)
_letters = msgspec.json.Decoder(DeadLetter)
_timer_keys = msgspec.json.Decoder(TimerKey)

encode = _encoder.encode
decode_token = _tokens.decode
decode_task = _tasks.decode
decode_tasks = _task_lists.decode
decode_header = _headers.decode
decode_letter = _letters.decode
decode_timer_key = _timer_keys.decode

_SOME = Token(ExecutionId("\0"), NodeId(""), NO_ITEM, 0, Nonce(""))


def lost_around(reason: str, *, is_crash: bool = True) -> tuple[bytes, bytes, bytes]:
    """The message TaskLost up to its token, and its rest if the task was started, and if not.

    A script puts the token between: so it makes a message without knowing what one looks like.
    Unless it `is_crash`, the rest is the same: an end in good order counts towards no crash loop.
    """
    not_started = encode_message(TaskLost(token=_SOME, reason=reason))
    started = encode_message(TaskLost(token=_SOME, reason=reason, was_started=is_crash))
    before, _, rest = not_started.partition(encode(_SOME))
    return before, started.partition(encode(_SOME))[2], rest


def failed_around(error: ErrorInfo) -> tuple[bytes, bytes]:
    """The message TaskFailed up to its token, and its rest."""
    message = encode_message(TaskFailed(token=_SOME, error=error))
    before, _, rest = message.partition(encode(_SOME))
    return before, rest


def message_args(partition: int, command: Command) -> tuple[str | bytes | int | float, ...]:
    """As `send.lua` and `commit.lua` take it."""
    body = encode_message(command)
    if isinstance(command, CreateExecution):
        header = encode(pending_header(command))
        return partition, body, command.execution_id, header, repr(command.created_at)
    return partition, body, "", "", ""
