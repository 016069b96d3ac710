"""`runnel rerun` without an id: all executions that the options say, and that have ended."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from runnel.bulk import RERUNS, rerun_many, rerunnable
from runnel.cli import exits
from runnel.cli.asking import ask
from runnel.cli.beginning import Begun, run_several_here
from runnel.cli.choosing import Chosen, filter_of
from runnel.cli.documents import make_importable
from runnel.cli.hints import Hints
from runnel.cli.opening import looking
from runnel.cli.streams import results
from runnel.cli.words import compact, count
from runnel.client import Client
from runnel.listing import all_headers
from runnel.ports.archive import Archive, ExecutionFilter
from runnel.reruns import Rerun
from runnel.runtime.clock import RealClock
from runnel.runtime.sources import SOURCE_LABEL
from runnel.settings import Settings


def rerun_chosen(
    chosen: Chosen,
    wanted: Rerun,
    settings: Settings,
    hints: Hints,
    *,
    is_sure: bool,
    as_json: bool,
) -> int:
    """The exit code: 1 when one of them failed again, or could not be rerun."""
    reruns = Reruns(rerunnable(filter_of(chosen, RealClock().now()), limit=RERUNS), wanted)
    number, folders = asyncio.run(_look_at(reruns.chosen, settings))
    if not number:
        print("no executions to rerun")
        return exits.OK
    how_many = count(number, "execution")
    if not is_sure:
        ask(f"Rerun {how_many}?", f"{how_many} would be rerun")
    if settings.is_remote:
        code = asyncio.run(_hand_over(reruns, settings, hints, as_json=as_json))
    else:
        make_importable(folders)
        with results() as out:
            running = run_several_here(reruns.begin, settings, hints, out=out, as_json=as_json)
            code = asyncio.run(running)
    return max(code, exits.FAILED if reruns.failed else exits.OK)


@dataclass(slots=True)
class Reruns:
    chosen: ExecutionFilter
    wanted: Rerun
    failed: int = field(default=0)

    async def begin(self, client: Client, archive: Archive) -> Sequence[Begun]:
        """One that can't be rerun is told, and the others are."""
        begun: list[Begun] = []
        known = 0
        chosen = self.chosen
        while True:
            step = await rerun_many(client, archive, chosen, self.wanted)
            for failure in step.failures:
                _say(f"not rerun: {failure.error}")
            begun += [Begun(each, (await client.load(each)).graph.workflow) for each in step.ids]
            self.failed += step.failed
            known += step.known
            if step.next is None:
                break
            chosen = structs.replace(chosen, after=step.next)
        if known:
            _say(f"left out: {count(known, 'execution')} that had been rerun so before")
        return begun


async def _look_at(chosen: ExecutionFilter, settings: Settings) -> tuple[int, list[str]]:
    """How many there are, and the folders that they were submitted from."""
    number, folders = 0, dict[str, None]()
    async with looking(settings) as look:
        async for header in all_headers(look.backend.archive, chosen):
            number += 1
            if SOURCE_LABEL in header.labels:
                folders[header.labels[SOURCE_LABEL]] = None
    return number, list(folders)


async def _hand_over(reruns: Reruns, settings: Settings, hints: Hints, *, as_json: bool) -> int:
    """To the workers of a server, without waiting for them: they may be many."""
    async with looking(settings) as look:
        begun = await reruns.begin(look.client, look.backend.archive)
    for each in begun if as_json else ():
        print(compact({"execution_id": each.execution_id, "workflow": each.workflow.name}))
    _say(f"rerun: {count(len(begun), 'execution')}")
    if begun and not as_json:
        _say(f"workers run them; see: {hints.return_to(begun[0].execution_id)}")
    return exits.OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
