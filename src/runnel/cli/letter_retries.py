"""`runnel dlq retry`: each execution that has dead letters is run again, what failed of it."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runnel.cli import exits
from runnel.cli.beginning import Begun, run_several_here
from runnel.cli.documents import make_importable
from runnel.cli.hints import Hints
from runnel.cli.letter_configs import Change
from runnel.cli.letters import Choice
from runnel.cli.opening import looking
from runnel.cli.streams import results
from runnel.cli.words import compact
from runnel.client import Client
from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId, root_of
from runnel.core.json_types import Json
from runnel.dead_letters import letters_of, name_of
from runnel.operations.letters import retry_each
from runnel.ports.archive import Archive
from runnel.runtime.sources import SOURCE_LABEL
from runnel.settings import Settings


@dataclass(slots=True, kw_only=True)
class Retries:
    """The letters by the root of their execution, the oldest first."""

    trees: dict[ExecutionId, list[DeadLetter]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    configs: Mapping[str, Json] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    async def begin(self, client: Client, archive: Archive) -> Sequence[Begun]:
        """One that can't be retried is told, and the others are."""
        begun = []
        async for each in retry_each(client, archive, self.trees, configs=self.configs):
            if each.error is not None and len(self.trees) == 1:
                raise each.error
            if each.execution_id is None:
                self.problems.append(str(each.error))
                _say(f"not retried: {each.error}")
                continue
            names = ", ".join(name_of(letter) for letter in each.letters)
            _say(f"retried {names}: execution {each.execution_id} is a rerun of {each.root}")
            execution = await client.load(each.execution_id)
            begun.append(Begun(each.execution_id, execution.graph.workflow))
        return begun


def retry(
    choice: Choice, change: Change, settings: Settings, hints: Hints, *, as_json: bool
) -> int:
    """The exit code: 1 when one of them failed again, or could not be retried."""
    choice.check(needs_all=True)
    chosen, retries = asyncio.run(_choose(choice, settings))
    if not chosen:
        print("no dead letters")
        return exits.OK
    retries.configs = change.of(chosen)
    if settings.is_remote:
        return asyncio.run(_hand_over(retries, settings, hints, as_json=as_json))
    make_importable(dict.fromkeys(retries.folders))
    with results() as out:
        running = run_several_here(retries.begin, settings, hints, out=out, as_json=as_json)
        code = asyncio.run(running)
    return max(code, exits.FAILED if retries.problems else exits.OK)


async def _choose(choice: Choice, settings: Settings) -> tuple[list[DeadLetter], Retries]:
    retries = Retries()
    async with looking(settings) as look:
        archive = look.backend.archive
        chosen = await choice.letters(look)
        for root in dict.fromkeys(root_of(letter.token.execution_id) for letter in chosen):
            retries.trees[root] = await letters_of(archive, root)
            header = await archive.get_header(root) if root else None
            if header is not None and SOURCE_LABEL in header.labels:
                retries.folders.append(header.labels[SOURCE_LABEL])
    return chosen, retries


async def _hand_over(retries: Retries, settings: Settings, hints: Hints, *, as_json: bool) -> int:
    """To the workers of a server, without waiting for them: they may be many."""
    async with looking(settings) as look:
        begun = await retries.begin(look.client, look.backend.archive)
    for each in begun:
        if as_json:
            print(compact({"execution_id": each.execution_id, "workflow": each.workflow.name}))
    if begun and not as_json:
        _say(f"workers run them; see: {hints.return_to(begun[0].execution_id)}")
    return exits.FAILED if retries.problems else exits.OK


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
