"""Suspects are tried one by one; nobody waits for ever, neither they nor the others."""

import asyncio
from collections.abc import Sequence

from runnel.backends.local.board import TaskBoard
from runnel.backends.local.marks import NO_MARK
from runnel.backends.local.tasks import LocalTasks
from runnel.backends.local.trials import OVERTAKERS_MAX, QUIET_S
from runnel.core.commands import Command, TaskDeferred, TaskStarted
from runnel.core.ids import Token, ref_of
from runnel.testing.clock import FakeClock
from runnel.testing.conformance.values import done, task, token

WAIT_S = 30.0
LIMIT = 8


class FakeMarks:
    def __init__(self, *suspects: str, tried: Sequence[str] = ()) -> None:
        self.suspects = {ref_of(token(name)): name in tried for name in (*suspects, *tried)}
        self.is_trial = False

    def begin(self, token: Token) -> int:
        return NO_MARK

    def begin_trial(self, token: Token) -> int:
        return NO_MARK

    def note(self, mark: int) -> None: ...

    def end(self, mark: int) -> None: ...

    def set_trial(self, *, is_on: bool) -> None:
        self.is_trial = is_on


class Place:
    """A board whose partition 0 was adopted with these suspects, and one worker at it."""

    def __init__(self, marks: FakeMarks) -> None:
        self.marks = marks
        self.clock = FakeClock()
        self.board = TaskBoard(lambda _partition, _command: None)
        self.tasks = LocalTasks(self.board, self.clock, _no_rates)
        self.board.adopt(0, marks)

    def issue(self, *names: str) -> None:
        for name in names:
            self.board.issue(0, task(name))

    async def begins(self, *, limit: int = LIMIT) -> list[str]:
        """What the worker begins now, after waiting for quiet if it has to."""
        claim = asyncio.ensure_future(self.tasks.claim("w", None, limit=limit, wait_s=WAIT_S))
        await self.clock.advance(QUIET_S * 2)
        if not claim.done():
            claim.cancel()
            return []
        tokens = [each.token for each in claim.result()]
        await self.tasks.start("w", tokens, now=0.0)
        return [each.node_id for each in tokens]

    async def ends(self, *names: str) -> None:
        await self.tasks.report("w", [done(name) for name in names])

    async def runs_for_a_while(self, name: str) -> None:
        await self.report(TaskStarted(token=token(name), worker="w", started_at=0.0))

    async def report(self, report: Command) -> None:
        await self.tasks.report("w", [report])


async def _no_rates(tag: str, *, rate_per_second: float, burst: int, wait_s_max: float) -> float:
    return 0.0


async def test_suspects_are_tried_one_by_one_before_everything_else() -> None:
    place = Place(FakeMarks("a", "b"))
    place.issue("c", "a", "b", "d")

    begun = [await place.begins()]
    begun.append(await place.begins())
    await place.ends("a")
    begun.append(await place.begins())
    await place.ends("b")
    begun.append(await place.begins())

    assert begun == [["a"], [], ["b"], ["c", "d"]]


async def test_one_that_died_on_trial_is_tried_again_after_everything_else() -> None:
    place = Place(FakeMarks("b", tried=["a"]))
    place.issue("a", "b", "c", "d")

    begun = [await place.begins()]
    await place.ends("b")
    begun.append(await place.begins())
    await place.ends("c")
    await place.runs_for_a_while("d")
    begun.append(await place.begins())
    await place.ends("d")
    begun.append(await place.begins())

    assert begun == [["b"], ["c", "d"], [], ["a"]]


async def test_a_trial_waits_for_what_has_just_begun_and_not_for_what_runs_for_long() -> None:
    place = Place(FakeMarks("a"))
    place.issue("b", "c")
    await place.begins()
    place.issue("a", "d")

    begun = [await place.begins()]
    await place.ends("b")
    begun.append(await place.begins())
    await place.runs_for_a_while("c")
    begun.append(await place.begins())

    assert begun == [[], [], ["a"]]


async def test_nothing_begins_next_to_a_suspect_until_it_has_run_for_a_while() -> None:
    place = Place(FakeMarks("a"))
    place.issue("a", "c")
    begun = [await place.begins()]

    begun.append(await place.begins())
    await place.runs_for_a_while("a")
    begun.append(await place.begins())

    assert begun == [["a"], [], ["c"]]


async def test_a_trial_lasts_until_the_suspect_itself_has_ended() -> None:
    place = Place(FakeMarks("a"))
    place.issue("b")
    await place.begins()
    await place.runs_for_a_while("b")
    seen = [place.marks.is_trial]

    place.issue("a")
    await place.begins()
    seen.append(place.marks.is_trial)
    await place.ends("b")
    seen.append(place.marks.is_trial)
    await place.ends("a")
    seen.append(place.marks.is_trial)

    assert seen == [False, True, True, False]


async def test_whoever_waits_is_woken_by_the_end_of_a_trial() -> None:
    place = Place(FakeMarks("a"))
    place.issue("a")
    await place.begins()
    place.issue("c")
    claim = asyncio.ensure_future(place.tasks.claim("w", None, limit=1, wait_s=WAIT_S))
    await place.clock.advance(0)

    await place.ends("a")
    await place.clock.advance(0)

    assert [each.token.node_id for each in await claim] == ["c"]


async def test_a_suspect_that_ended_is_cleared() -> None:
    place = Place(FakeMarks("a"))
    place.issue("a")
    await place.begins()
    await place.ends("a")

    place.issue("c", "a")

    assert await place.begins() == ["c", "a"]


async def test_a_suspect_that_was_put_off_is_tried_later() -> None:
    place = Place(FakeMarks("a"))
    place.issue("a")
    await place.begins()
    await place.report(TaskDeferred(token=token("a"), until=1.0))

    place.issue("c", "a")

    assert (place.marks.is_trial, await place.begins()) == (False, ["a"])


async def test_a_suspect_that_is_lost_and_issued_again_later_is_still_one() -> None:
    """Its new attempt may have to wait for a concurrency key first."""
    place = Place(FakeMarks("a"))
    place.board.drop(token("a"))
    place.issue("c")

    begun = [await place.begins()]
    await place.ends("c")
    place.board.issue(0, task("a", attempt=2))
    place.issue("d")
    begun.append(await place.begins())

    assert begun == [["c"], ["a"]]


async def test_a_long_task_and_one_that_died_on_trial_hold_nobody_up() -> None:
    place = Place(FakeMarks(tried=["a"]))
    place.issue("long")
    await place.begins()
    await place.runs_for_a_while("long")
    place.issue("a", *(f"n{number}" for number in range(OVERTAKERS_MAX + 1)))

    first = await place.begins(limit=OVERTAKERS_MAX)
    await place.ends(*first)
    begun = [await place.begins()]
    await place.ends("a")
    begun.append(await place.begins())

    assert begun == [["a"], [f"n{OVERTAKERS_MAX}"]]


async def test_one_that_died_on_trial_is_overtaken_by_so_many_and_no_more() -> None:
    place = Place(FakeMarks(tried=["a"]))
    place.issue("a", *(f"n{number}" for number in range(OVERTAKERS_MAX + 1)))
    first = await place.begins(limit=OVERTAKERS_MAX)

    await place.ends(*first)
    begun = [await place.begins()]
    await place.ends("a")
    begun.append(await place.begins())

    assert len(first) == OVERTAKERS_MAX
    assert begun == [["a"], [f"n{OVERTAKERS_MAX}"]]


async def test_a_partition_that_is_given_up_takes_its_suspects_along() -> None:
    place = Place(FakeMarks("a"))
    place.issue("a")
    await place.begins()

    place.board.drop_partition(0)
    place.issue("c", "a")

    assert await place.begins() == ["c", "a"]


async def test_a_suspect_that_nobody_here_serves_holds_nobody_up() -> None:
    place = Place(FakeMarks("a"))
    place.board.issue(0, task("a", queue="elsewhere"))
    place.issue("c")

    claimed = await place.tasks.claim("w", ["default"], limit=LIMIT, wait_s=0)

    assert [each.token.node_id for each in claimed] == ["c"]
