"""Follows what `resume` has taken over, and says what it could not take."""

import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import msgspec

from runnel.app.engine import Adopts, Engine
from runnel.app.process_signals import pid_of
from runnel.app.run import SOURCE_LABEL
from runnel.app.stores import Look, looking
from runnel.authoring.builder import STEP_HANDLER
from runnel.authoring.functions import IN_SESSION
from runnel.cli import errors as exits
from runnel.cli.session.follow import Attendance
from runnel.cli.session.hints import Hints
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.open_client import find
from runnel.cli.session.progress import Progress
from runnel.client.definitions import Definitions
from runnel.client.listing import all_headers
from runnel.core.events import ExecutionCreated
from runnel.core.ids import DefinitionHash, ExecutionId, root_of
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.workflow import Workflow
from runnel.notify.hub import Happened, Started
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Header, LeaseRecord
from runnel.settings.model import Settings

# Executions that are not final, and who is to go on with them.

PAGE = 500
UNFINISHED = tuple(state for state in ExecutionState if state not in EXECUTION_FINAL)
OF_PROGRAM = (
    "it ran inside a program (WorkflowExecutor, or an interactive session) and can't be resumed "
    "here"
)


def is_of_program(workflow: Workflow) -> bool:
    """Whether its functions are in the memory of one process, and have no name elsewhere."""
    return any(
        node.handler == STEP_HANDLER
        or str(node.config.get("function", "")).startswith(IN_SESSION)
        or (node.child is not None and is_of_program(node.child))
        for node in workflow.nodes
    )


class Unfinished:
    """What is found out about a tree or a definition is asked for once."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._definitions = Definitions(look.backend.archive, look.clock)
        self._has_running_root: dict[ExecutionId, bool] = {}
        self._owners: dict[ExecutionId, LeaseRecord | None] = {}

    async def all(self, wanted: ExecutionFilter | None = None) -> AsyncIterator[Header]:
        """Newest first; children always, and whatever the `limit`."""
        wanted = wanted or ExecutionFilter(states=UNFINISHED)
        every = msgspec.structs.replace(wanted, with_children=True, limit=PAGE)
        async for header in all_headers(self._look.backend.archive, every):
            yield header

    async def is_part(self, header: Header) -> bool:
        """Whether it belongs to a root that is unfinished: who goes on with that, does with it."""
        root = root_of(header.execution_id)
        if root == header.execution_id:
            return False
        found = self._has_running_root.get(root)
        if found is None:
            top = await self._look.backend.archive.get_header(root)
            found = top is not None and top.state not in EXECUTION_FINAL
            self._has_running_root[root] = found
        return found

    async def owner_of(self, header: Header) -> LeaseRecord | None:
        """None when no living process has it; a tree has one owner."""
        root = root_of(header.execution_id)
        if root not in self._owners:
            self._owners[root] = await self._look.owner_of(header.execution_id)
        return self._owners[root]

    async def is_of_program(self, header: Header) -> bool:
        graph = await self._definitions.graph(DefinitionHash(header.definition))
        return is_of_program(graph.workflow)


# What `resume` finds unfinished, who has it, and what it can take over.


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


class Takeover:
    """Follows what the engine has brought to life, oldest first."""

    def __init__(self, engine: Engine, attendance: Attendance, found: Found) -> None:
        self._engine = engine
        self._attendance = attendance
        self._found = found
        self._created: list[ExecutionId] = []
        self._held: list[ExecutionId] = []
        self._end_watch = engine.hub.watch(self._see)

    async def follow(self) -> None:
        self._end_watch()
        for child in self._found.children:
            self._attendance.expect(child)
        wanted = [header.execution_id for header in self._found.free]
        for execution_id in dict.fromkeys([*wanted, *self._created]):
            await self._follow(execution_id)

    def sentences(self) -> Sequence[str]:
        """About those that are not followed; and that there was nothing at all."""
        held = [
            f"execution {each} was never started: it waits to be triggered" for each in self._held
        ]
        rest = [*self._found.refused, *held]
        if not rest and not self._attendance.followed and self._attendance.signal is None:
            return ["nothing to resume"]
        return rest

    def tell_rest(self) -> None:
        for sentence in self.sentences():
            print(sentence, file=sys.stderr)

    async def _follow(self, execution_id: ExecutionId) -> None:
        store = self._engine.backend.store
        record = await store.observe(await store.route(execution_id))
        if record is not None and record.owner != self._engine.name:
            self._found.refused.append(is_run_by(execution_id, record))
            return
        execution = await self._engine.client.load(execution_id)
        if execution.state is ExecutionState.PENDING:
            self._held.append(execution_id)
        else:
            self._attendance.follow(Progress.of(execution))

    def _see(self, what: Happened | Started) -> None:
        """An execution whose process died before it had even been made: it is made now."""
        if isinstance(what, Started):
            return
        for event in what.events:
            if isinstance(event, ExecutionCreated) and event.parent is None:
                self._created.append(event.execution_id)
                make_importable(
                    [event.labels[SOURCE_LABEL]] if SOURCE_LABEL in event.labels else []
                )
