"""A concurrency key: attempts hold it, and a release wakes the next waiter."""

from runnel.core.codec import encode_entry
from runnel.core.commands import (
    AcquireLimit,
    Command,
    LimitCommand,
    LimitGranted,
    ReleaseLimit,
    ResumeLimit,
)
from runnel.core.concurrency_key import ConcurrencyLimit, decide_limit, replay_limit
from runnel.core.effects import SendCommand
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken


def holder(name: str, attempt: int = 1) -> TaskToken:
    return TaskToken(ExecutionId(name), NodeId("n"), NO_ITEM, attempt, Nonce("x"))


def ask(limit: ConcurrencyLimit, command: LimitCommand) -> list[str]:
    """Returns the executions that were notified of their grant."""
    granted: list[Command] = [
        effect.command
        for effect in decide_limit(limit, command).effects
        if isinstance(effect, SendCommand)
    ]
    return [command.holder.execution_id for command in granted if isinstance(command, LimitGranted)]


def acquire(limit: ConcurrencyLimit, token: TaskToken, most: int = 1) -> list[str]:
    return ask(limit, AcquireLimit(key="k", limit=most, holder=token))


def release(limit: ConcurrencyLimit, token: TaskToken) -> list[str]:
    return ask(limit, ReleaseLimit(key="k", holder=token))


def test_the_limit_bounds_the_holders_and_the_others_wait_in_order() -> None:
    limit = ConcurrencyLimit("k")

    assert acquire(limit, holder("a"), 2) == ["a"]
    assert acquire(limit, holder("b"), 2) == ["b"]
    assert acquire(limit, holder("c"), 2) == []
    assert acquire(limit, holder("d"), 2) == []
    assert release(limit, holder("b")) == ["c"]
    assert release(limit, holder("a")) == ["d"]


def test_a_repeated_request_is_granted_again_without_a_second_place() -> None:
    limit = ConcurrencyLimit("k")
    acquire(limit, holder("a"))

    assert acquire(limit, holder("a")) == ["a"]
    assert acquire(limit, holder("b")) == []
    assert acquire(limit, holder("b")) == []
    assert release(limit, holder("a")) == ["b"]
    assert release(limit, holder("b")) == []
    assert limit.is_empty


def test_a_release_without_a_hold_changes_nothing() -> None:
    limit = ConcurrencyLimit("k")
    acquire(limit, holder("a"))

    assert release(limit, holder("b")) == []
    assert not limit.is_empty


def test_a_new_attempt_replaces_the_previous_one() -> None:
    limit = ConcurrencyLimit("k")
    acquire(limit, holder("a", attempt=1))

    assert acquire(limit, holder("a", attempt=2)) == ["a"]
    assert list(limit.holders) == [holder("a", attempt=2)]


def test_a_late_request_of_an_old_attempt_does_not_replace_a_newer_one() -> None:
    limit = ConcurrencyLimit("k")
    acquire(limit, holder("a", attempt=2))

    assert acquire(limit, holder("a", attempt=1)) == []
    assert list(limit.holders) == [holder("a", attempt=2)]


def test_after_a_takeover_all_holders_are_notified_and_no_waiter() -> None:
    limit = ConcurrencyLimit("k")
    for name in "abc":
        acquire(limit, holder(name), 2)

    assert ask(limit, ResumeLimit(key="k")) == ["a", "b"]
    assert list(limit.waiters) == [holder("c")]


def test_a_limit_is_rebuilt_from_its_history() -> None:
    limit = ConcurrencyLimit("k")
    commands: list[AcquireLimit | ReleaseLimit] = [
        *(AcquireLimit(key="k", limit=2, holder=holder(name)) for name in "abcd"),
        ReleaseLimit(key="k", holder=holder("a")),
    ]
    entries = [encode_entry(1.0, decide_limit(limit, command).events) for command in commands]

    rebuilt = replay_limit("k", entries)

    assert list(rebuilt.holders) == [holder("b"), holder("c")]
    assert list(rebuilt.waiters) == [holder("d")]
