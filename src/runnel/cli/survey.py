"""What `resume` finds unfinished, who has it, and what it can take over."""

from dataclasses import dataclass, field

from runnel.cli import exits
from runnel.cli.finding import find
from runnel.cli.hints import Hints
from runnel.cli.unfinished import OF_PROGRAM, Unfinished
from runnel.core.ids import ExecutionId, root_of
from runnel.ports.store import Header, LeaseRecord
from runnel.runtime.engine import Adopts
from runnel.runtime.look import Look, looking
from runnel.runtime.names import pid_of
from runnel.runtime.sources import SOURCE_LABEL
from runnel.settings import Settings


@dataclass(slots=True, kw_only=True)
class Found:
    """`free` can be taken over: roots, and children whose root is final. `children` are those of
    the roots. `refused` is a sentence for each one that can't; `refusal` is why the one that was
    asked for can't be resumed, with its exit code.
    """

    free: list[Header] = field(default_factory=list)
    children: list[ExecutionId] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    adopts: Adopts = True
    refusal: tuple[str, int] | None = None

    @property
    def folders(self) -> list[str]:
        """Where the functions are that these executions call."""
        return [each.labels[SOURCE_LABEL] for each in self.free if SOURCE_LABEL in each.labels]


async def survey(settings: Settings, text: str | None, hints: Hints) -> Found:
    """Looks without touching: one execution by what the user typed, or all unfinished ones."""
    async with looking(settings) as look:
        return await (_all(look, hints) if text is None else _one(look, text, hints))


def is_run_by(execution_id: str, record: LeaseRecord) -> str:
    pid = pid_of(record.owner)
    process = "another process" if pid is None else f"another process (pid {pid})"
    return f"execution {execution_id} is being run by {process}"


async def _one(look: Look, text: str, hints: Hints) -> Found:
    """With the tree that it belongs to: whoever goes on with one goes on with all of them."""
    root = root_of(await find(look, text))
    found, unfinished = Found(), Unfinished(look)
    async for header in unfinished.all():
        if root_of(header.execution_id) == root:
            await _sort(header, found, unfinished, hints)
    if found.refused:
        found.refusal = (found.refused[0], exits.FAILED)
    elif not found.free:
        top = await look.backend.archive.get_header(root)
        state = "gone" if top is None else top.state.lower()
        found.refusal = (f"nothing to resume: execution {root} is {state}", exits.OK)
    found.free.reverse()
    found.adopts = frozenset({await look.backend.store.route(root)})
    return found


async def _all(look: Look, hints: Hints) -> Found:
    found, unfinished = Found(), Unfinished(look)
    store = look.backend.store
    of_programs = set()
    async for header in unfinished.all():
        await _sort(header, found, unfinished, hints)
        if await unfinished.is_of_program(header):
            of_programs.add(await store.route(header.execution_id))
    if of_programs:
        found.adopts = frozenset(await store.partitions()) - of_programs
    found.free.reverse()
    return found


async def _sort(header: Header, found: Found, unfinished: Unfinished, hints: Hints) -> None:
    execution_id = header.execution_id
    if await unfinished.is_part(header):
        found.children.append(execution_id)
        return
    record = await unfinished.owner_of(header)
    if record is not None:
        found.refused.append(is_run_by(execution_id, record))
    elif await unfinished.is_of_program(header):
        end = hints.end(execution_id)
        found.refused.append(f"execution {execution_id}: {OF_PROGRAM}; end it with: {end}")
    else:
        found.free.append(header)
