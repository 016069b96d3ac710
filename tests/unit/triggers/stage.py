"""Schedulers on one store in memory, whose time a test moves; nobody runs what they start."""

from collections.abc import Sequence
from datetime import datetime
from typing import cast

import msgspec

from runnel.backends.memory import MemoryBackend
from runnel.client.store_client import StoreClient
from runnel.core.commands import Command
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.workflow import encode_workflow, hash_workflow
from runnel.errors import StoreError
from runnel.notify.waiter import Completion
from runnel.ports.archive import ExecutionFilter
from runnel.ports.records import Records
from runnel.ports.store import ExecutionHeader
from runnel.testing.clock import FakeClock, FakeIds
from runnel.triggers.schedule import ScheduleProgress
from runnel.triggers.schedule_store import ScheduleStore
from runnel.triggers.scheduler import Scheduler
from runnel.views.trigger import Schedule
from tests.driver import make_node, make_workflow

NIGHTLY = msgspec.structs.replace(make_workflow(make_node("a")), name="report")
START = 1_700_000_000.0


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields))

    def named(self, name: str) -> list[dict[str, object]]:
        return [fields for each, fields in self.events if each == name]

    def committed(self, *_args: object) -> None: ...

    def started(self, *_args: object) -> None: ...

    def ended(self, *_args: object) -> None: ...

    def measured(self, *_args: object) -> None: ...


class Stage:
    def __init__(self) -> None:
        self.clock = FakeClock(START)
        self.ids = FakeIds()
        self.backend = MemoryBackend(self.clock, self.ids)
        self.told = Told()

    @property
    def schedules(self) -> ScheduleStore:
        return ScheduleStore(self.backend, self.clock, self.ids)

    def scheduler(self) -> Scheduler:
        """As a process of its own has one."""
        client = StoreClient(
            self.backend, self.clock, self.ids, get_completion=lambda _id: Completion()
        )
        return Scheduler(self.schedules, client, self.backend.archive, self.clock, self.told)

    def scheduler_away(self) -> "tuple[Scheduler, AwayRecords]":
        """One that loses its store as the test says."""
        records = self.backend.records
        away = AwayRecords(records, StoreError("gone"))
        self.backend.records = cast("Records", away)
        scheduler = self.scheduler()
        self.backend.records = records
        return scheduler, away

    async def sent(self) -> list[Command]:
        lease = await self.backend.store.acquire(0, "owner")
        entries = await self.backend.store.read_inbox(lease, limit=100, wait_s=0)
        return [entry.command for entry in entries if entry.command is not None]

    async def add_workflow(self) -> None:
        await self.backend.archive.put_definition(
            NIGHTLY.name, hash_workflow(NIGHTLY), encode_workflow(NIGHTLY)
        )

    async def add(self, schedule_id: str = "s", **fields: object) -> None:
        """Every ten seconds, unless it says otherwise."""
        await self.add_workflow()
        if "cron" not in fields:
            fields = {"interval_s": 10.0, **fields}
        schedule = Schedule(id=schedule_id, workflow=NIGHTLY.name, **fields)  # type: ignore[arg-type]  # each test gives what fits
        await self.schedules.add(schedule)

    async def progress(self, schedule_id: str = "s") -> ScheduleProgress:
        return (await self.schedules.get(schedule_id)).record.progress

    async def started(self) -> Sequence[ExecutionHeader]:
        """By tick."""
        found = (await self.backend.archive.list_headers(ExecutionFilter(limit=10_000))).headers
        return sorted(found, key=lambda each: each.labels["runnel.tick"])

    async def ticks(self) -> list[float]:
        """Of what was started, as seconds since the beginning."""
        commands = [each.labels["runnel.tick"] for each in await self.started()]
        decoded = [msgspec.json.decode(f'"{text}"', type=datetime) for text in commands]
        return [each.timestamp() - START for each in decoded]

    def end(self, execution_id: str | None) -> None:
        """As its owner would."""
        headers = self.backend.state.headers
        known = ExecutionId(execution_id or "")
        headers[known] = msgspec.structs.replace(headers[known], state=ExecutionState.COMPLETED)


class AwayRecords:
    """Fails so many calls of one method, before or after it does what it is asked."""

    def __init__(self, records: Records, error: Exception) -> None:
        self._records = records
        self._error = error
        self.failing = ""
        self.is_done = False

    def __getattr__(self, name: str) -> object:
        method = getattr(self._records, name)
        if name != self.failing:
            return method

        async def fail(*args: object, **named: object) -> None:
            self.failing = ""
            if self.is_done:
                await method(*args, **named)
            raise self._error

        return fail
