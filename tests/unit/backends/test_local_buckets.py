"""A bucket never issues more tokens than its burst and its rate allow."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.backends.local.tasks import CLOCK_JUMP_S_MAX, take_rate_token

steps = st.lists(st.floats(0, 3), min_size=1, max_size=60)


@given(steps=steps, rate=st.floats(0.1, 50), burst=st.integers(1, 10))
def test_no_time_window_has_more_tokens_than_burst_and_rate_allow(
    steps: list[float], rate: float, burst: int
) -> None:
    now = full_at = 1_000.0
    runs: list[float] = []

    for step in steps:
        now += step
        wait_s, full_at = take_rate_token(
            full_at, now=now, rate_per_second=rate, burst=burst, wait_s_max=5.0
        )
        if wait_s <= 5.0:
            runs.append(now + wait_s)

    runs.sort()
    for first in range(len(runs)):
        for last in range(first, len(runs)):
            allowed = burst + (runs[last] - runs[first]) * rate
            assert last - first + 1 <= allowed + 1e-6


def test_a_clock_that_was_turned_back_does_not_lock_a_bucket() -> None:
    written_before = 1_000.0 + 2 * CLOCK_JUMP_S_MAX

    wait_s, _ = take_rate_token(
        written_before, now=1_000.0, rate_per_second=1.0, burst=1, wait_s_max=5.0
    )

    assert wait_s == 0.0
