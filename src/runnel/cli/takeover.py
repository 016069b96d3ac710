"""What `resume` finds unfinished, who has it, and what it can take over."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from runnel.cli import exits
from runnel.cli.attending import Attendance
from runnel.cli.documents import SOURCE_LABEL, make_importable
from runnel.cli.finding import find
from runnel.cli.progress import Progress
from runnel.core.events import ExecutionCreated
from runnel.core.ids import ExecutionId, root_of
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.ports.archive import ExecutionFilter
from runnel.ports.store import Header, LeaseRecord
from runnel.runtime.engine import Adopts, Engine
from runnel.runtime.hub import Happened, Started
from runnel.runtime.look import Look, looking
from runnel.runtime.names import pid_of
from runnel.settings import Settings

PAGE = 500
_UNFINISHED = tuple(state for state in ExecutionState if state not in EXECUTION_FINAL)


@dataclass(slots=True, kw_only=True)
class Found:
    """`free` can be taken over, `owned` is a sentence for each one that can't; `refusal` is why
    the one that was asked for can't be resumed, with its exit code.
    """

    free: list[Header] = field(default_factory=list)
    owned: list[str] = field(default_factory=list)
    adopts: Adopts = True
    refusal: tuple[str, int] | None = None

    @property
    def folders(self) -> list[str]:
        """Where the functions are that these executions call."""
        return [each.labels[SOURCE_LABEL] for each in self.free if SOURCE_LABEL in each.labels]


async def survey(settings: Settings, text: str | None) -> Found:
    """Looks without touching: one execution by what the user typed, or all unfinished ones."""
    async with looking(settings) as look:
        return await (_all(look) if text is None else _one(look, text))


def is_run_by(execution_id: str, record: LeaseRecord) -> str:
    pid = pid_of(record.owner)
    process = "another process" if pid is None else f"another process (pid {pid})"
    return f"execution {execution_id} is being run by {process}"


async def _one(look: Look, text: str) -> Found:
    root = root_of(await find(look, text))
    header = await look.backend.archive.get_header(root)
    if header is None or header.state in EXECUTION_FINAL:
        state = "gone" if header is None else header.state.lower()
        return Found(refusal=(f"nothing to resume: execution {root} is {state}", exits.OK))
    record = await look.owner_of(root)
    if record is not None:
        return Found(refusal=(is_run_by(root, record), exits.FAILED))
    return Found(free=[header], adopts=frozenset({await look.backend.store.route(root)}))


async def _all(look: Look) -> Found:
    found = Found()
    after: ExecutionId | None = None
    while True:
        wanted = ExecutionFilter(states=_UNFINISHED, after=after, limit=PAGE)
        page = await look.client.list_executions(wanted)
        for header in page:
            record = await look.owner_of(header.execution_id)
            if record is None:
                found.free.append(header)
            else:
                found.owned.append(is_run_by(header.execution_id, record))
        if len(page) < PAGE:
            found.free.reverse()
            return found
        after = page[-1].execution_id


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
        wanted = [header.execution_id for header in self._found.free]
        for execution_id in dict.fromkeys([*wanted, *self._created]):
            await self._follow(execution_id)

    def sentences(self) -> Sequence[str]:
        """About those that are not followed; and that there was nothing at all."""
        held = [
            f"execution {each} was never started: it waits to be triggered" for each in self._held
        ]
        rest = [*self._found.owned, *held]
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
            self._found.owned.append(is_run_by(execution_id, record))
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
