"""Dead letters for the commands: found, listed and shown."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from runnel.cli.hints import Hints
from runnel.cli.looks import LOOKS
from runnel.cli.opening import has_data, looking
from runnel.cli.tables import Cell, print_styled, print_table
from runnel.cli.words import DAY_S, compact, local_time, pretty
from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId, root_of
from runnel.dead_letters import all_letters, find_letter, name_of
from runnel.errors import InputError
from runnel.operations.letters import letter_document
from runnel.operations.queues import queue_key, queue_name
from runnel.ports.archive import LetterFilter
from runnel.ports.store import Header
from runnel.runtime.look import Look
from runnel.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the command line says about which letters are meant."""

    names: Sequence[str]
    is_all: bool
    queue: str | None
    workflow: str | None
    oldest: int | None = None
    older_than_days: float | None = None

    @property
    def has_filter(self) -> bool:
        chosen = (self.queue, self.workflow, self.older_than_days)
        return any(each is not None for each in chosen)

    async def letters(self, look: Look) -> list[DeadLetter]:
        """Oldest first; raises NotFoundError for a name, InputError for a contradiction."""
        if self.names:
            archive = look.backend.archive
            return [await find_letter(archive, name) for name in dict.fromkeys(self.names)]
        days = self.older_than_days or 0.0
        wanted = LetterFilter(
            queue=queue_key(self.queue),
            workflow=self.workflow,
            before=look.clock.now() - days * DAY_S,
        )
        found = [each async for each in all_letters(look.backend.archive, wanted)]
        return found[::-1][: self.oldest]

    def check(self, *, needs_all: bool) -> None:
        """Raises InputError unless it says what is meant, and only once."""
        rest = self.is_all or self.has_filter or self.oldest is not None
        if self.names and rest:
            raise InputError("give the names of dead letters, or --all and filters; not both")
        if not self.names and not self.is_all and (needs_all or not self.has_filter):
            filters = "" if needs_all else " or a filter"
            raise InputError(f"give the names of dead letters, or --all{filters}")


async def load_page(settings: Settings, wanted: LetterFilter) -> Sequence[DeadLetter]:
    """Nothing where nothing was ever run."""
    if not has_data(settings):
        return ()
    async with looking(settings) as look:
        return await look.backend.archive.list_dead_letters(wanted)


async def load_count(settings: Settings, wanted: LetterFilter) -> int:
    if not has_data(settings):
        return 0
    async with looking(settings) as look:
        return await look.backend.archive.count_dead_letters(wanted)


async def load_one(settings: Settings, name: str) -> tuple[DeadLetter, Header | None]:
    """With the execution that can be rerun; None when it was deleted."""
    async with looking(settings) as look:
        letter = await find_letter(look.backend.archive, name)
        root = root_of(letter.token.execution_id)
        return letter, await look.backend.archive.get_header(ExecutionId(root)) if root else None


def print_count(number: int, *, as_json: bool) -> None:
    print(compact({"count": number}) if as_json else number)


def print_page(letters: Sequence[DeadLetter], limit: int, *, as_json: bool) -> None:
    if as_json:
        for letter in letters:
            print(compact(letter_document(letter)))
        return
    if not letters:
        print("no dead letters")
        return
    rows = [
        [
            Cell(name_of(letter)),
            Cell(letter.workflow, "bold"),
            Cell(queue_name(letter.queue), "dim"),
            Cell(local_time(letter.rejected_at), "dim"),
            Cell(str(letter.token.attempt), "dim"),
            Cell(" ".join(str(letter.error).split()), "red"),
        ]
        for letter in letters
    ]
    print_table(["NAME", "WORKFLOW", "QUEUE", "REJECTED", "ATTEMPTS", "ERROR"], rows)
    if len(letters) == limit:
        print(f"(the newest {limit}; --limit shows more)")


def print_one(letter: DeadLetter, header: Header | None, hints: Hints, *, as_json: bool) -> None:
    if as_json:
        state = None if header is None else header.state.value
        print(compact({**letter_document(letter), "execution_status": state}))
        return
    print_styled([Cell(f"{LOOKS['FAILED'].glyph} {name_of(letter)}", "bold")])
    for name, text in _facts(letter, header):
        print_styled([Cell(f"  {name:<11}", "dim"), Cell(text)])
    print_styled([Cell("\nconfig", "dim")])
    print(pretty(msgspec.json.decode(letter.config)))
    if letter.error.traceback:
        print_styled([Cell("\ntraceback", "dim")])
        print(letter.error.traceback.rstrip())
    if header is not None:
        print_styled([Cell("\nretry", "dim"), Cell(f"  {hints.retry(name_of(letter))}", "cyan")])


def _facts(letter: DeadLetter, header: Header | None) -> list[tuple[str, str]]:
    state = "was deleted: it can't be retried" if header is None else f"is {header.state.lower()}"
    execution = root_of(letter.token.execution_id)
    facts = [
        ("workflow", letter.workflow),
        ("execution", f"{execution} {state}" if execution else ""),
        ("queue", queue_name(letter.queue)),
        ("handler", letter.handler),
        ("attempts", str(letter.token.attempt)),
        ("rejected", local_time(letter.rejected_at)),
        ("reason", letter.reason),
        ("error", str(letter.error)),
    ]
    return [(name, text) for name, text in facts if text]
