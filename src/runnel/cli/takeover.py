"""Follows what `resume` has taken over, and says what it could not take."""

import sys
from collections.abc import Sequence

from runnel.cli.attending import Attendance
from runnel.cli.documents import make_importable
from runnel.cli.progress import Progress
from runnel.cli.survey import Found, is_run_by
from runnel.core.events import ExecutionCreated
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.runtime.engine import Engine
from runnel.runtime.hub import Happened, Started
from runnel.runtime.sources import SOURCE_LABEL


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
