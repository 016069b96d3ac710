"""Builds the arguments of `commit.lua`, and decodes the inbox entries that a commit consumes."""

from collections.abc import Sequence
from typing import Any

from runnel.backends.feed_log import build_commit_entries
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import (
    RedisKeyNames,
    RedisLayout,
    build_message_args,
    encode,
    split_stopped_message,
)
from runnel.core.codec import decode_message
from runnel.core.commands import LIMIT_PREFIX, TASK_ENDINGS
from runnel.core.effects import DeadLetter, TaskMessage
from runnel.core.ids import TaskToken
from runnel.core.states import ExecutionState
from runnel.errors import UnreadableFormatError
from runnel.ports.store import (
    Commit,
    ExecutionHeader,
    InboxEntry,
    InboxPosition,
    Lease,
    TimerRecord,
)

_STOPPED_MESSAGE = split_stopped_message()


def build_commit_keys(keys: RedisKeyNames, partition: int) -> list[str]:
    return [
        f"{keys.partition}{partition}",
        f"{keys.inbox}{partition}",
        f"{keys.timers}{partition}",
        f"{keys.attempts}{partition}",
        f"{keys.running}{partition}",
        keys.task_locations,
        keys.queues,
        keys.waiting,
        keys.headers,
        keys.ids_by_created_at,
        keys.ids,
        keys.letter_queues,
        keys.history,
        keys.tasks,
        keys.inbox,
        keys.held,
        keys.dropped,
        keys.letters,
        f"{keys.limits}{partition}",
        f"{keys.journal}{partition}",
        f"{keys.ended}{partition}",
        f"{keys.ended_children}{partition}",
        keys.feed,
        keys.push_channel,
        keys.arrivals,
        keys.turns,
        keys.lanes,
        keys.last_turn,
    ]


def build_commit_args(
    layout: RedisLayout, lease: Lease, commit: Commit, *, letters_max: int, journal_entries_max: int
) -> list[Arg]:
    consumed = commit.consumed or ""
    next_position = increment_position(commit.consumed) if commit.consumed else ""
    args: list[Arg] = [
        lease.epoch,
        lease.nonce,
        commit.sequence,
        lease.partition,
        consumed,
        next_position,
    ]
    args += (LIMIT_PREFIX, journal_entries_max if layout.is_journaled else 0)
    args += _STOPPED_MESSAGE
    args.append(len(commit.histories))
    for history in commit.histories:
        args += (history.aggregate_id, history.entry)
    args.append(len(commit.headers))
    for header in commit.headers:
        args += _build_header_args(header)
    args += (len(commit.closed), *commit.closed, len(commit.tasks))
    args += build_task_args(commit.tasks)
    args += (len(commit.dropped), *map(encode, commit.dropped))
    args += (len(commit.timers_cleared), *map(encode, commit.timers_cleared))
    args.append(len(commit.timers_set))
    for timer in commit.timers_set:
        args += _build_timer_args(timer)
    args.append(len(commit.messages))
    for command in commit.messages:
        args += build_message_args(layout.route(command.aggregate_id), command)
    args.append(len(commit.dead_letters))
    for letter in commit.dead_letters:
        args += _build_letter_args(letter, letters_max)
    feed_entries = build_commit_entries(commit)
    args += (len(feed_entries), *feed_entries)
    args += (len(commit.stopped), *map(encode, commit.stopped))
    return args


def increment_position(position: InboxPosition) -> str:
    """Returns the lowest position after this one.

    A trim needs this position, because XTRIM MINID keeps the entry at its argument.
    """
    milliseconds, _, number = position.partition("-")
    return f"{milliseconds}-{int(number) + 1}"


def _build_header_args(header: ExecutionHeader) -> Sequence[Arg]:
    return header.execution_id, encode(header), repr(header.created_at), get_header_kind(header)


def get_header_kind(header: ExecutionHeader) -> str:
    """Returns the kind of a header for the scripts: running, pending, final root or child."""
    if header.state is ExecutionState.RUNNING:
        return "r"
    if header.state is ExecutionState.PENDING:
        return "p"
    return "f" if header.parent_id is None else "c"


def build_task_args(tasks: Sequence[TaskMessage]) -> Sequence[Arg]:
    """Returns the arguments of the tasks, in the order in which waiting workers get them.

    It is the order in which a claim takes tasks: the highest priority first, lanes in turn. A lane
    is named by its priority and its workflow. The tasks of a lane are sorted by place and
    execution. A task that is issued again comes first in its execution.
    """
    keyed = [
        (f"{task.place:017.6f} {token.execution_id} {int(token.attempt == 1)}", number, task)
        for number, task in enumerate(tasks)
        for token in (task.token,)
    ]
    keyed.sort()
    lanes: dict[str, int] = {}
    rows: list[tuple[int, int, int, str, str, TaskMessage]] = []
    for key, number, task in keyed:
        lane = f"{task.priority} {task.workflow}"
        turn = lanes[lane] = lanes.get(lane, 0) + 1
        rows.append((-task.priority, turn, number, lane, key, task))
    if len(lanes) > 1:
        rows.sort()
    args: list[Arg] = []
    for _, _, _, lane, key, task in rows:
        args += (task.queue, encode(task.token), encode(task), lane, key)
    return args


def _build_timer_args(timer: TimerRecord) -> Sequence[Arg]:
    return encode(timer.key), repr(timer.due), timer.attempt


def _build_letter_args(letter: DeadLetter, letters_max: int) -> Sequence[Arg]:
    """Returns the arguments of one dead letter.

    The separate fields are for people who read the stream. Runnel itself reads the encoded letter.
    The token identifies the task, because a claim deletes the stream entry of the task.
    """
    token = letter.token
    return (
        letter.queue,
        letters_max,
        encode(letter),
        token.execution_id,
        token.node_id,
        token.item,
        token.attempt,
        letter.handler,
        bytes(letter.config),
        letter.reason,
        encode(token),
        str(letter.error),
        repr(letter.rejected_at),
    )


# -- inbox: a stream, of which the reader stores its own position -------------------------------

INBOX_PAGE_SIZE = 1_000


def decode_inbox_entries(stream: Sequence[Any]) -> list[InboxEntry]:
    return [_decode_entry(position, fields) for position, fields in stream]


def is_after(position: InboxPosition, other: InboxPosition) -> bool:
    return _parse_position(position) > _parse_position(other)


async def find_unread_reports(pool: RedisConnectionPool, key: str) -> set[TaskToken]:
    """Returns the tokens of the task reports that no commit has consumed.

    Reads the whole stream, because consumed entries are trimmed from it.
    """
    tokens: set[TaskToken] = set()
    async for page in pool.read_stream(key, page_size=INBOX_PAGE_SIZE):
        commands = [entry.command for entry in decode_inbox_entries(page)]
        tokens |= {command.token for command in commands if isinstance(command, TASK_ENDINGS)}
    return tokens


async def measure_unread_s(pool: RedisConnectionPool, key: str) -> float:
    """Returns the age in seconds of the oldest unconsumed entry, or 0 if the inbox is empty."""
    first = await pool.call("XRANGE", key, "-", "+", "COUNT", 1)
    if not first:
        return 0.0
    arrived_ms = int(first[0][0].partition(b"-")[0])
    return max(0.0, await pool.read_time() - arrived_ms / 1e3)


def _decode_entry(position: bytes, fields: Sequence[bytes]) -> InboxEntry:
    """Decodes one inbox entry. Returns an unreadable entry with its position and the problem."""
    inbox_position, body = InboxPosition(position.decode()), fields[1]
    try:
        return InboxEntry(position=inbox_position, command=decode_message(body))
    except UnreadableFormatError as error:
        return InboxEntry(position=inbox_position, command=None, body=body, problem=str(error))


def _parse_position(position: InboxPosition) -> tuple[int, int]:
    milliseconds, _, number = position.partition("-")
    return int(milliseconds), int(number)
