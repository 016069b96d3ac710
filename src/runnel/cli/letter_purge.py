"""`runnel dlq purge`: dead letters are removed for good, if that is meant."""

import asyncio

from runnel.cli import exits
from runnel.cli.asking import ask
from runnel.cli.letters import Choice
from runnel.cli.opening import looking
from runnel.cli.words import count
from runnel.core.effects import DeadLetter
from runnel.settings import Settings


def purge(choice: Choice, settings: Settings, *, is_sure: bool) -> int:
    choice.check(needs_all=False)
    letters = asyncio.run(_choose(choice, settings))
    if not letters:
        print("no dead letters")
        return exits.OK
    how_many = count(len(letters), "dead letter")
    if not is_sure:
        ask(f"Remove {how_many} for good?", f"{how_many} would be removed for good")
    deleted = asyncio.run(_delete(letters, settings))
    print(f"removed: {count(deleted, 'dead letter')}")
    return exits.OK


async def _choose(choice: Choice, settings: Settings) -> list[DeadLetter]:
    async with looking(settings) as look:
        return await choice.letters(look)


async def _delete(letters: list[DeadLetter], settings: Settings) -> int:
    async with looking(settings) as look:
        return await look.backend.archive.delete_dead_letters(letters)
