"""The heap of timers forgets cleared and moved timers, in its results and in memory."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.backends.local.inbox import STALE_MIN, LocalTimers
from runnel.ports.store import TimerRecord
from runnel.testing.conformance.suite import make_timer, make_timer_key

names = st.sampled_from("abcdef")
times = st.integers(0, 20).map(float)
steps = st.lists(st.tuples(names, st.none() | times), max_size=60)


@given(steps=steps, now=times, limit=st.integers(1, 8))
def test_due_timers_equal_those_of_a_sorted_list(
    steps: list[tuple[str, float | None]], now: float, limit: int
) -> None:
    timers = LocalTimers()
    expected: dict[str, TimerRecord] = {}

    for name, due in steps:
        if due is None:
            timers.clear(make_timer_key(name))
            expected.pop(name, None)
        else:
            timers.set(make_timer(name, due=due))
            expected[name] = make_timer(name, due=due)
        timers.due(now, limit=limit)

    listed = timers.due(now, limit=limit)
    dues = sorted(timer.due for timer in expected.values())
    assert [timer.due for timer in listed] == [due for due in dues if due <= now][:limit]
    assert all(expected[timer.key.node_id] == timer for timer in listed)
    assert timers.next_due() == (dues[0] if dues else None)


def test_a_timer_that_is_set_again_and_again_uses_no_more_memory() -> None:
    timers = LocalTimers()

    for number in range(10_000):
        timers.set(make_timer("a", due=float(number)))

    assert len(timers) <= STALE_MIN + 2
    assert timers.next_due() == 9_999.0
