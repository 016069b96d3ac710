"""Retry arithmetic and error classification."""

import pytest

from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo, RetryPolicy, compute_crash_delay

TOKEN = TaskToken(ExecutionId("e"), NodeId("n"), NO_ITEM, 1, Nonce("x"))


@pytest.mark.parametrize(
    ("failures", "delay"), [(1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (5_000, 60.0)]
)
def test_the_delay_doubles_up_to_its_maximum(failures: int, delay: float) -> None:
    policy = RetryPolicy(max_retries=10_000, jitter=False)

    assert policy.delay_after(failures, TOKEN) == delay


def test_three_retries_make_four_attempts() -> None:
    policy = RetryPolicy(jitter=False)

    assert [policy.delay_after(n, TOKEN) is not None for n in (1, 2, 3, 4)] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("least_s", "delay"), [(None, 1.0), (0.5, 1.0), (90.0, 90.0), (10_000.0, 3_600.0)]
)
def test_an_error_may_request_a_longer_delay(least_s: float | None, delay: float) -> None:
    policy = RetryPolicy(jitter=False)

    assert policy.delay_after(1, TOKEN, delay_s_min=least_s) == delay
    assert policy.delay_after(4, TOKEN, delay_s_min=least_s) is None


def test_jitter_adds_up_to_half_and_depends_on_the_ids_alone() -> None:
    policy = RetryPolicy(initial_delay=10)
    tokens = [
        TaskToken(ExecutionId(f"e{i}"), NodeId("n"), NO_ITEM, 1, Nonce("x")) for i in range(200)
    ]

    delays = [policy.delay_after(1, token) or 0 for token in tokens]

    assert all(10 <= delay < 15 for delay in delays)
    assert max(delays) - min(delays) > 4
    assert delays == [policy.delay_after(1, token) for token in tokens]


@pytest.mark.parametrize(
    ("losses", "least", "most"),
    [(1, 0, 0), (2, 0, 2), (3, 0, 4), (6, 0, 32), (7, 0, 60), (10**6, 0, 60)],
)
def test_from_the_second_worker_death_on_the_delays_are_spread(
    losses: int, least: float, most: float
) -> None:
    tokens = [
        TaskToken(ExecutionId(f"e{i}"), NodeId("n"), NO_ITEM, 1, Nonce("x")) for i in range(200)
    ]

    delays = [compute_crash_delay(losses, token) for token in tokens]

    assert all(least <= delay <= most for delay in delays)
    assert max(delays) - min(delays) >= 0.9 * most


def test_an_enormous_base_does_not_overflow() -> None:
    policy = RetryPolicy(max_retries=10**6, exponential_base=1e300, jitter=False)

    assert policy.delay_after(500, TOKEN) == 60.0


@pytest.mark.parametrize(
    ("types", "is_retryable"),
    [
        (("ValueError",), False),
        (("TypeError",), False),
        (("KeyError", "LookupError"), False),
        (("AttributeError",), False),
        (("JSONDecodeError", "ValueError"), False),
        (("ConnectionRefusedError", "ConnectionError", "OSError"), True),
        (("TimeoutError", "OSError"), True),
        (("RuntimeError",), True),
        (("ZeroDivisionError", "ArithmeticError"), True),
    ],
)
def test_bad_data_is_not_retried_and_other_errors_are(
    types: tuple[str, ...], is_retryable: bool
) -> None:
    error = ErrorInfo(type=types[0], message="", types=types)

    assert RetryPolicy().is_retryable(error) is is_retryable


def test_the_node_decides_before_the_error_and_the_error_before_its_class() -> None:
    error = ErrorInfo(type="ValueError", message="", types=("ValueError",), retryable=True)

    assert RetryPolicy().is_retryable(error)
    assert not RetryPolicy(no_retry_on=("ValueError",)).is_retryable(error)
    plain = ErrorInfo(type="Odd", message="", types=("Odd", "ValueError"))
    assert RetryPolicy(retry_on=("Odd",)).is_retryable(plain)
    assert not RetryPolicy(retry_on=("Odd",), no_retry_on=("ValueError",)).is_retryable(plain)
