"""`runnel cancel` without an id: all executions that the options say."""

import asyncio

from msgspec import structs

from runnel.bulk import CANCELS, cancel_many, cancellable
from runnel.cli import exits
from runnel.cli.asking import ask
from runnel.cli.cancel import apply_commands
from runnel.cli.choosing import Chosen, filter_of
from runnel.cli.hints import Hints
from runnel.cli.opening import looking
from runnel.cli.options import Place, configure
from runnel.cli.words import count
from runnel.ports.archive import ExecutionFilter
from runnel.runtime.clock import RealClock
from runnel.runtime.look import Look
from runnel.settings import Settings


def cancel_chosen(
    chosen: Chosen, place: Place, *, reason: str, is_forced: bool, is_sure: bool
) -> int:
    settings = configure(place)
    wanted = cancellable(filter_of(chosen, RealClock().now()), limit=CANCELS)
    how_many = asyncio.run(_count(wanted, settings))
    if how_many is None:
        print("no executions to cancel")
        return exits.OK
    if not is_sure:
        ask(f"Cancel {how_many}?", f"{how_many} would be cancelled")
    number, free = asyncio.run(_cancel(wanted, settings, reason=reason, is_forced=is_forced))
    print(f"asked {count(number, 'execution')} to end")
    if not free:
        return exits.OK
    if settings.is_remote:
        hint = Hints(place, settings.is_remote).revive()
        print(f"no process runs some of them; go on with: {hint}")
    else:
        asyncio.run(apply_commands(settings, free))
    return exits.OK


async def _count(wanted: ExecutionFilter, settings: Settings) -> str | None:
    """None when there are none."""
    async with looking(settings) as look:
        counts = (await look.client.count_executions(wanted)).values()
    number = sum(each.number for each in counts)
    if any(each.is_least for each in counts):
        return f"at least {count(number, 'execution')}"
    return count(number, "execution") if number else None


async def _cancel(
    wanted: ExecutionFilter, settings: Settings, *, reason: str, is_forced: bool
) -> tuple[int, frozenset[int]]:
    """How many, and the partitions of those that nobody runs."""
    number, partitions = 0, set[int]()
    async with looking(settings) as look:
        mailbox = look.backend.mailbox
        while True:
            step = await cancel_many(
                look.client, mailbox, wanted, reason=reason, is_forced=is_forced
            )
            number += len(step.ids)
            partitions |= {await look.backend.store.route(each) for each in step.ids}
            if step.next is None:
                return number, await _without_owner(look, partitions)
            wanted = structs.replace(wanted, after=step.next)


async def _without_owner(look: Look, partitions: set[int]) -> frozenset[int]:
    store = look.backend.store
    return frozenset([each for each in partitions if await store.observe(each) is None])
