"""A commit as the arguments of `commit.lua`."""

from collections.abc import Sequence

from runnel.backends.feed_entries import entries_of
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.layout import Layout
from runnel.backends.redis.line import Arg
from runnel.backends.redis.values import encode, message_args
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.effects import DeadLetter, Task
from runnel.core.states import ExecutionState
from runnel.ports.store import Commit, Header, Lease, Position, TimerSet


def commit_keys(keys: Keys, partition: int) -> list[str]:
    return [
        f"{keys.partition}{partition}",
        f"{keys.inbox}{partition}",
        f"{keys.timers}{partition}",
        f"{keys.attempts}{partition}",
        f"{keys.running}{partition}",
        keys.out,
        keys.queues,
        keys.waiting,
        keys.headers,
        keys.listed,
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
        f"{keys.ended_below}{partition}",
        keys.feed,
        keys.hand,
    ]


def commit_args(
    layout: Layout, lease: Lease, commit: Commit, *, letters_max: int, journal_entries_max: int
) -> list[Arg]:
    consumed = commit.consumed or ""
    behind = behind_position(commit.consumed) if commit.consumed else ""
    args: list[Arg] = [lease.epoch, lease.nonce, commit.sequence, lease.partition, consumed, behind]
    args += (LIMIT_PREFIX, journal_entries_max if layout.is_journaled else 0)
    args.append(len(commit.histories))
    for history in commit.histories:
        args += (history.aggregate_id, history.entry)
    args.append(len(commit.headers))
    for header in commit.headers:
        args += _header(header)
    args += (len(commit.closed), *commit.closed, len(commit.tasks))
    for task in commit.tasks:
        args += _task(task)
    args += (len(commit.dropped), *map(encode, commit.dropped))
    args += (len(commit.timers_cleared), *map(encode, commit.timers_cleared))
    args.append(len(commit.timers_set))
    for timer in commit.timers_set:
        args += _timer(timer)
    args.append(len(commit.messages))
    for command in commit.messages:
        args += message_args(layout.route(command.aggregate_id), command)
    args.append(len(commit.dead_letters))
    for letter in commit.dead_letters:
        args += _letter(letter, letters_max)
    changed = entries_of(commit)
    args += (len(changed), *changed)
    return args


def behind_position(position: Position) -> str:
    """The least position behind this one: a stream is trimmed up to what is to stay."""
    milliseconds, _, number = position.partition("-")
    return f"{milliseconds}-{int(number) + 1}"


def _header(header: Header) -> Sequence[Arg]:
    return header.execution_id, encode(header), repr(header.created_at), header_kind(header)


def header_kind(header: Header) -> str:
    """As the scripts take it: running, pending, final, or final child."""
    if header.state is ExecutionState.RUNNING:
        return "r"
    if header.state is ExecutionState.PENDING:
        return "p"
    return "f" if header.parent_id is None else "c"


def _task(task: Task) -> Sequence[Arg]:
    return task.queue, encode(task.token), encode(task)


def _timer(timer: TimerSet) -> Sequence[Arg]:
    return encode(timer.key), repr(timer.due), timer.attempt


def _letter(letter: DeadLetter, letters_max: int) -> Sequence[Arg]:
    """The original fields are for whoever looks at the stream; Runnel itself reads the letter.

    A task is known by its token: its entry was gone when it was claimed.
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
