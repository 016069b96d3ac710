"""Plans which executions `runnel resume` takes over, and shows their progress."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from runnel.app.embedded_engine import AdoptedPartitions, EmbeddedEngine
from runnel.app.process_signals import parse_engine_pid
from runnel.authoring.functions import SOURCE_LABEL
from runnel.cli.errors import FAILED, OK
from runnel.cli.render.progress import ExecutionProgress
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import make_importable
from runnel.cli.session.open_client import ClientSession, find_execution_id, open_client
from runnel.cli.session.run_locally import LocalSession
from runnel.cli.session.unfinished import PROGRAM_ONLY_MESSAGE, UnfinishedExecutions
from runnel.cli.streams import print_to_stderr
from runnel.core.events import ExecutionCreated
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.states import ExecutionState
from runnel.notify.event_bus import CommittedEvents, StartedTask
from runnel.settings.model import Settings
from runnel.views.execution import ExecutionSummary


@dataclass(slots=True, kw_only=True)
class TakeoverPlan:
    """The executions that `runnel resume` takes over.

    `resumable` has root executions, and children whose root is final. `children` has the children
    of unfinished roots. `refused` has a sentence for each execution that can't be taken over.
    `root` is the root of the execution that the user named, or None for all. `refusal` is a reason
    and an exit code if the named execution can't be resumed.
    """

    resumable: list[ExecutionSummary] = field(default_factory=list)
    children: list[ExecutionId] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    adopts: AdoptedPartitions = True
    root: ExecutionId | None = None
    refusal: tuple[str, int] | None = None

    @property
    def folders(self) -> list[str]:
        """Returns the folders from which the functions of the resumable executions are imported."""
        return [
            summary.labels[SOURCE_LABEL]
            for summary in self.resumable
            if SOURCE_LABEL in summary.labels
        ]


async def plan_takeover(settings: Settings, text: str | None, hints: CommandHints) -> TakeoverPlan:
    """Plans the takeover of the execution that the user names, or of all unfinished executions.

    Changes nothing in the store.
    """
    async with open_client(settings) as session:
        if text is None:
            return await _plan_all(session, hints)
        return await _plan_one(session, text, hints)


def describe_owner(execution_id: str, owner: str) -> str:
    pid = parse_engine_pid(owner)
    process = "another process" if pid is None else f"another process (pid {pid})"
    return f"execution {execution_id} is being run by {process}"


async def _plan_one(session: ClientSession, text: str, hints: CommandHints) -> TakeoverPlan:
    """Plans the takeover of an execution's whole tree, because one process runs a tree."""
    root = get_root_id(await find_execution_id(session.client, text))
    plan, unfinished = TakeoverPlan(root=root), UnfinishedExecutions(session)
    async for summary in unfinished.iterate():
        if get_root_id(summary.execution_id) == root:
            await _classify(summary, plan, unfinished, hints)
    if plan.refused:
        plan.refusal = (plan.refused[0], FAILED)
    elif not plan.resumable:
        root_summary = (await session.client.summaries([root])).get(root)
        state = "deleted" if root_summary is None else root_summary.status.lower()
        plan.refusal = (f"nothing to resume: execution {root} is {state}", OK)
    plan.resumable.reverse()
    plan.adopts = frozenset({(await session.operations.partition_of(root)).partition})
    return plan


async def _plan_all(session: ClientSession, hints: CommandHints) -> TakeoverPlan:
    plan, unfinished = TakeoverPlan(), UnfinishedExecutions(session)
    operations = session.operations
    of_programs = set()
    async for summary in unfinished.iterate():
        await _classify(summary, plan, unfinished, hints)
        if await unfinished.is_bound_to_program(summary):
            of_programs.add((await operations.partition_of(summary.execution_id)).partition)
    if of_programs:
        partitions = frozenset(view.partition for view in await operations.partitions())
        plan.adopts = partitions - of_programs
    plan.resumable.reverse()
    return plan


async def _classify(
    summary: ExecutionSummary,
    plan: TakeoverPlan,
    unfinished: UnfinishedExecutions,
    hints: CommandHints,
) -> None:
    execution_id = summary.execution_id
    if await unfinished.has_unfinished_root(summary):
        plan.children.append(execution_id)
        return
    owner = await unfinished.find_owner(summary)
    if owner is not None:
        plan.refused.append(describe_owner(execution_id, owner))
    elif await unfinished.is_bound_to_program(summary):
        end = hints.force_cancel(execution_id)
        plan.refused.append(f"execution {execution_id}: {PROGRAM_ONLY_MESSAGE}; end it with: {end}")
    else:
        plan.resumable.append(summary)


class Takeover:
    """Adds to the session the executions that the engine has taken over, oldest first."""

    def __init__(
        self, engine: EmbeddedEngine, local_session: LocalSession, plan: TakeoverPlan
    ) -> None:
        self._engine = engine
        self._local_session = local_session
        self._plan = plan
        self._created: list[ExecutionId] = []
        self._never_started: list[ExecutionId] = []
        self._unsubscribe = engine.event_bus.watch(self._on_notification)

    async def follow(self) -> None:
        self._unsubscribe()
        for child in self._plan.children:
            self._local_session.add_child(child)
        resumable = [summary.execution_id for summary in self._plan.resumable]
        # The partition of a named execution may hold others, whose end the user does not wait for.
        created = self._created if self._plan.root is None else []
        for execution_id in dict.fromkeys([*resumable, *created]):
            await self._follow(execution_id)

    def describe_rest(self) -> Sequence[str]:
        """Returns a sentence for each execution that was not resumed, or "nothing to resume"."""
        held = [
            f"execution {execution_id} waits for its trigger: the execution was never started"
            for execution_id in self._never_started
        ]
        sentences = [*self._plan.refused, *held]
        if (
            not sentences
            and not self._local_session.followed
            and self._local_session.signal is None
        ):
            return ["nothing to resume"]
        return sentences

    def print_rest(self) -> None:
        for sentence in self.describe_rest():
            print_to_stderr(sentence)

    async def _follow(self, execution_id: ExecutionId) -> None:
        store = self._engine.backend.store
        record = await store.observe(await store.route(execution_id))
        if record is not None and record.owner != self._engine.name:
            self._plan.refused.append(describe_owner(execution_id, record.owner))
            return
        execution = await self._engine.client.load(execution_id)
        if execution.state is ExecutionState.PENDING:
            self._never_started.append(execution_id)
        else:
            self._local_session.follow(ExecutionProgress.from_execution(execution))

    def _on_notification(self, notification: CommittedEvents | StartedTask) -> None:
        """Records an execution that the engine creates for a process that died after the submit."""
        if isinstance(notification, StartedTask):
            return
        for event in notification.events:
            if isinstance(event, ExecutionCreated) and event.parent is None:
                self._created.append(event.execution_id)
                make_importable(
                    [event.labels[SOURCE_LABEL]] if SOURCE_LABEL in event.labels else []
                )
