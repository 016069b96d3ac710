"""What requests and answers hold, as OpenAPI describes it."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.requests import VERSION_MAX, EnumValue, ExecutionQuery, RequestBody, RequestTime
from runnel.api.security.tokens import NAME_CHARS_MAX as TOKENS_NAME_CHARS_MAX
from runnel.client.reruns import RerunSpec
from runnel.core.states import ExecutionState, NodeState
from runnel.core.validation.checks import NAME_CHARS_MAX
from runnel.views.node import AttemptOutcome
from runnel.views.token import Scope
from runnel.views.trigger import TOKEN_HEADER, Overlap, WebhookKind

# Times in answers: ISO-8601 in UTC.

ResponseTime: TypeAlias = Annotated[
    str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-01-31T09:30:00.250Z"])
]


# Executions as requests and answers have them.


class Summary(BaseModel):
    """An execution as lists show it."""

    execution_id: str
    workflow: str
    version: int
    status: ExecutionState
    error: str | None
    created_at: ResponseTime
    started_at: ResponseTime | None
    finished_at: ResponseTime | None
    parent_id: str | None
    rerun_of: str | None
    labels: dict[str, str]


class Listed(Summary):
    workflow_definition_id: str = Field(description="The hash of the workflow's content")


class ExecutionPage(BaseModel):
    items: list[Listed]
    next: str | None = Field(description="Give this as `after` to get the next page")


class StateCount(BaseModel):
    number: int
    is_least: bool = Field(description="There may be more: counting went no further")


class Counts(BaseModel):
    states: dict[ExecutionState, StateCount]


class NodeAnswer(BaseModel):
    """A node of an execution; `items` is only there for a map."""

    state: NodeState
    attempts: int
    output: Any
    error: str | None
    started_at: ResponseTime | None
    finished_at: ResponseTime | None
    reason: str | None
    waits_for: str | None
    due: ResponseTime | None
    items_settled: int | None
    items: int | None
    traceback: str | None


class ExecutionAnswer(Summary):
    """An execution with its nodes."""

    input: Any
    output: Any
    nodes: dict[str, NodeAnswer]


class HistoryItem(BaseModel):
    at: ResponseTime
    event: str
    fields: dict[str, Any]


class HistoryAnswer(BaseModel):
    items: list[HistoryItem]


class TriggerRequest(RequestBody):
    """What a held execution starts with."""

    input_params: Any = Field(
        default=None, description="By default the input that it was submitted with"
    )


class Triggered(BaseModel):
    execution_id: str
    status: ExecutionState


class CancelRequest(RequestBody):
    reason: str = Field(default="", description="It is kept with the execution")
    force: bool = Field(default=False, description="Clean-up nodes do not run either")


class SignalRequest(RequestBody):
    name: str = Field(description="What the node waits for")
    payload: Any = None
    signal_id: str | None = Field(
        default=None, description="The same one is taken once, however often it is sent"
    )


class RerunOptions(RequestBody):
    """What of an execution is run again: by default what did not complete, and all behind it."""

    nodes: list[str] = Field(
        default=[], max_length=1_000, description="Run these again, and all behind them"
    )
    whole: bool | None = Field(default=None, description="Run everything again")
    newest: bool = Field(default=False, description="Follow the newest version of the workflow")
    configs: dict[str, Any] = Field(default={}, description="Replace the configs of these nodes")

    def to_rerun(self) -> RerunSpec:
        return RerunSpec(
            again=self.nodes,
            is_whole=self.whole,
            is_newest=self.newest,
            configs=self.configs,
        )


class RerunRequest(RerunOptions):
    """By default, what did not complete, and all behind it, with the same input."""

    input: Any = None


class Accepted(BaseModel):
    """The request is stored; whoever runs the execution acts on it at once."""

    execution_id: str


# One node in all detail, as answers have it.


class ErrorAnswer(BaseModel, extra="allow"):
    type: str
    message: str
    traceback: str | None = None


class LogLine(BaseModel):
    at: ResponseTime
    level: str
    text: str


class AttemptAnswer(BaseModel, extra="allow"):
    """One attempt; `logs` are the last lines that its code has written by `ctx.logger`."""

    number: int
    outcome: AttemptOutcome
    worker: str
    queued_at: ResponseTime | None
    started_at: ResponseTime | None
    finished_at: ResponseTime | None
    error: ErrorAnswer | None
    logs: list[LogLine]


class ItemAnswer(BaseModel):
    item: int
    state: NodeState
    attempts: int
    worker: str
    started_at: ResponseTime | None
    finished_at: ResponseTime | None
    error: ErrorAnswer | None
    output: Any
    child_id: str | None


class ItemsAnswer(BaseModel):
    count: int
    settled: int
    items: list[ItemAnswer]
    next: int | None = Field(description="Give this as `items_after` to get the next page")


class NodeDetailAnswer(BaseModel):
    """What it got, what came out, and every attempt; `items` is there for a map."""

    execution_id: str
    node_id: str
    item: int | None
    handler: str
    state: NodeState
    attempts: list[AttemptAnswer]
    config: Any = Field(description="As the last attempt got it, with secrets by name")
    config_error: str | None
    inputs: dict[str, Any]
    output: Any
    error: ErrorAnswer | None
    reason: str | None
    waits_for: str | None
    due: ResponseTime | None
    started_at: ResponseTime | None
    finished_at: ResponseTime | None
    dependencies: dict[str, NodeState]
    child_id: str | None
    is_cached: bool
    items: ItemsAnswer | None


# Workflows as requests and answers have them.


class Submitted(BaseModel):
    """A workflow that was stored, and an execution that waits to be triggered."""

    workflow_definition_id: str = Field(description="The hash of the workflow's content")
    workflow: str
    version: int
    execution_id: str
    status: ExecutionState


class StoredWorkflow(BaseModel):
    """One version of a workflow."""

    name: str
    version: int
    workflow_definition_id: str
    nodes: int


class ListedWorkflow(StoredWorkflow):
    document: dict[str, Any] | None = Field(
        default=None, description="As it could be written in a file, if that was asked for"
    )


class WorkflowPage(BaseModel):
    items: list[ListedWorkflow]
    next: str | None = Field(description="Give this as `after` to get the next page")


class WorkflowDocument(StoredWorkflow):
    document: dict[str, Any] = Field(description="As it could be written in a file")


class Deleted(BaseModel):
    versions: int = Field(description="How many there were")


class Valid(BaseModel):
    """A document that would be taken."""

    name: str
    nodes: int
    layers: int


class GraphNode(BaseModel):
    id: str
    handler: str


class GraphAnswer(BaseModel):
    """Nodes, edges from parent to child, and layers: each holds what may run at once."""

    workflow: str
    nodes: list[GraphNode]
    edges: list[tuple[str, str]]
    layers: list[list[str]]


class RunRequest(RequestBody):
    """What an execution of a stored workflow begins with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": {"n": 1}}]})

    input: Any = Field(default=None, description="By default an empty object")
    labels: dict[str, str] = Field(default={})
    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="By default the newest"
    )


class Begun(BaseModel):
    """An execution that is stored, and runs as soon as a worker is free."""

    execution_id: str
    workflow: str
    version: int
    status: ExecutionState
    created_at: ResponseTime | None = None


# Workers, queues, limits and partitions as answers have them.


class TaskAnswer(BaseModel):
    """A task that runs."""

    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    workflow: str
    handler: str
    started_at: ResponseTime


class WorkerAnswer(BaseModel):
    """`tasks` are those that have run for the longest, as of the last heartbeat."""

    worker: str
    state: Literal["alive", "draining", "silent", "dead"]
    holds: int = Field(description="Tasks that it has claimed and not reported")
    silent_s: float = Field(description="Since its last heartbeat")
    host: str | None
    pid: int | None
    queues: list[str] | None = Field(description="Null when it takes tasks of all queues")
    handlers: list[str]
    concurrency: int | None
    beat_s: float | None
    started_at: ResponseTime | None
    version: str | None
    claimed_at: ResponseTime | None = Field(description="When it last got a task")
    tasks: list[TaskAnswer]


class WorkerList(BaseModel):
    items: list[WorkerAnswer]


class Draining(BaseModel):
    """It is told with its next heartbeat, finishes what it runs, and ends."""

    worker: str


class QueueAnswer(BaseModel):
    queue: str
    waiting: int
    oldest_s: float = Field(description="How long the oldest task has waited")
    workers: int = Field(description="Living workers that take its tasks")
    problem: str = Field(description="What a person should look at; empty when all is well")


class QueueList(BaseModel):
    items: list[QueueAnswer]


class HolderAnswer(BaseModel):
    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    limit: int = Field(description="How many may hold the key at once")


class LimitAnswer(BaseModel):
    """A concurrency key; the first hundred of those that hold it, and of those in line."""

    key: str
    holding: int
    waiting: int
    holders: list[HolderAnswer]
    waiters: list[HolderAnswer]


class LimitPage(BaseModel):
    items: list[LimitAnswer]
    next: str | None = Field(description="Give this as `after` to get the next page")


class PartitionAnswer(BaseModel):
    partition: int
    owner: str | None = Field(description="The orchestrator that decides for it")
    epoch: int | None
    is_silent: bool = Field(description="Its owner has given no sign of life lately")
    unread_s: float = Field(description="How long the oldest message has not been read")
    unarchived: int = Field(description="Commits that the archive does not have yet")
    problem: str


class PartitionList(BaseModel):
    items: list[PartitionAnswer]


# Dead letters as requests and answers have them.

RETRIED_EXECUTIONS_MAX = 100


class DeadLetterAnswer(BaseModel):
    """A task that needs a person: what it was given, and what was wrong with it."""

    name: str = Field(description="`execution/node`, or `execution/node/item`")
    execution_id: str
    workflow: str
    node: str
    item: int | None
    attempts: int
    queue: str
    handler: str
    reason: str
    error: str
    traceback: str | None
    config: Any
    rejected_at: ResponseTime


class DeadLetterDetail(DeadLetterAnswer):
    """`execution_status` is that of the execution that a retry would rerun; null without one."""

    execution_status: ExecutionState | None


class DeadLetterPage(BaseModel):
    items: list[DeadLetterAnswer]
    next: str | None = Field(description="Give this as `after` to get the next page")


class DeadLetterCount(BaseModel):
    count: int


class RetryRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"configs": {"parse": {"year": 2026}}}]}
    )

    configs: dict[str, Any] = Field(
        default={}, description="Replace the configs of these nodes of the execution"
    )


class Selection(RequestBody):
    """Which letters are meant: those that all of the given fields hold for."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queue": "python"}, {"all": True}]})

    queue: str | None = Field(default=None, max_length=NAME_CHARS_MAX)
    workflow: str | None = Field(default=None, max_length=NAME_CHARS_MAX)
    execution: str = Field(
        default="", max_length=500, description="The beginning of an execution's id"
    )
    older_than_s: float = Field(
        default=0.0, ge=0, le=1e9, description="Rejected at least so long ago"
    )
    all: bool = Field(default=False, description="Needed when nothing else is given")


class BulkRetryRequest(Selection):
    limit: int = Field(
        default=RETRIED_EXECUTIONS_MAX,
        ge=1,
        le=RETRIED_EXECUTIONS_MAX,
        description="So many executions at most",
    )


class RetriedAnswer(BaseModel):
    """All letters of `rerun_of` are gone: `execution_id` runs again what failed there."""

    execution_id: str
    rerun_of: str
    letters: list[str]


class NotRetried(BaseModel):
    rerun_of: str
    letters: list[str]
    code: str
    message: str


class BulkRetried(BaseModel):
    """`left` executions have letters that were asked for and not looked at: call again."""

    retried: list[RetriedAnswer]
    refused: list[NotRetried]
    left: int


class Purged(BaseModel):
    purged: int


# Schedules as requests and answers have them.


class ScheduleBody(RequestBody):
    """Runs a workflow by `cron` or every `interval_s`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"workflow": "hello", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}]
        },
    )

    workflow: str = Field(max_length=500)
    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="By default the newest at each tick"
    )
    input: Any = Field(
        default={}, description="May hold templates: `{{ tick.at }}`, `{{ tick.date }}`"
    )
    labels: dict[str, str] = Field(default={})
    cron: str | None = Field(
        default=None, max_length=200, description="Minute hour day month weekday, or @daily"
    )
    interval_s: float | None = Field(default=None, description="A second to ten years")
    timezone: str = Field(default="UTC", max_length=100)
    overlap: EnumValue[Overlap] = Field(
        default=Overlap.ALLOW,
        description="While the execution before is not final: start another, skip the tick, or "
        "cancel that one",
    )
    catch_up: int = Field(
        default=1, ge=0, le=100, description="How many missed ticks are made up for after an outage"
    )
    is_paused: bool = False
    starts_at: RequestTime | None = None
    ends_at: RequestTime | None = None


class NewSchedule(ScheduleBody):
    id: str = Field(max_length=100, description="Letters, digits, '.', '_' and '-'")


class ScheduleAnswer(BaseModel):
    """A schedule, what has become of it, and its next ticks."""

    id: str
    workflow: str
    version: int | None
    input: Any
    labels: dict[str, str]
    cron: str | None
    interval_s: float | None
    timezone: str
    overlap: Overlap
    catch_up: int
    is_paused: bool
    starts_at: ResponseTime | None
    ends_at: ResponseTime | None
    created_at: ResponseTime
    next_ticks: list[ResponseTime]
    fired: int
    skipped: int = Field(description="Because the execution before was not final")
    missed: int = Field(description="In an outage, for good")
    failed: int = Field(description="They could not be started; `last_error` says why")
    last_tick: ResponseTime | None
    last_execution_id: str | None
    last_skipped: ResponseTime | None
    last_error: str | None


class SchedulePage(BaseModel):
    items: list[ScheduleAnswer]
    next: str | None = Field(description="Give this as `after` to get the next page")


class DispatchRequest(RequestBody):
    now: RequestTime | None = Field(
        default=None, description="The time that an outside scheduler goes by"
    )


class TickOutcome(BaseModel):
    schedule_id: str
    tick: ResponseTime
    execution_id: str | None
    error: str | None


class Dispatched(BaseModel):
    """What was fired by this call; ticks that somebody else has fired are not in it."""

    items: list[TickOutcome]


# Webhooks as requests and answers have them.


class WebhookBody(RequestBody):
    """Who may call, and what the input of the execution is made of."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "github",
                    "secret": "github",
                    "mapping": {"repository": "{{ body.repository.full_name }}"},
                }
            ]
        },
    )

    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="By default the newest at each call"
    )
    kind: EnumValue[WebhookKind] = Field(
        default=WebhookKind.TOKEN, description="How a caller proves who it is"
    )
    secret: str | None = Field(
        default=None,
        max_length=100,
        description="The name of a secret of the server: `github` is `RUNNEL_SECRET_GITHUB`",
    )
    header: str = Field(
        default=TOKEN_HEADER, max_length=100, description="Where a token is looked for"
    )
    mapping: Any = Field(
        default=None,
        description="A template of `body`, `headers` and `query`; by default an object of all",
    )
    delivery_id: str | None = Field(
        default=None, max_length=1_000, description="A template of what tells deliveries apart"
    )
    labels: dict[str, str] = Field(default={})


class WebhookAnswer(BaseModel):
    """A webhook; of its secret, nothing but the name."""

    workflow: str
    version: int | None
    kind: WebhookKind
    secret: str | None
    header: str | None
    mapping: Any
    delivery_id: str | None
    labels: dict[str, str]
    created_at: ResponseTime


class WebhookPage(BaseModel):
    items: list[WebhookAnswer]
    next: str | None = Field(description="Give this as `after` to get the next page")


class Delivered(BaseModel):
    """The execution of a delivery, which is stored; the same for one that came before."""

    execution_id: str
    run_id: str
    status: ExecutionState


class Challenge(BaseModel):
    """What Slack asks a new address for."""

    challenge: str


# Tokens as requests and answers have them.

TOKEN_DAYS_MAX = 36_500


class TokenAnswer(BaseModel):
    """A token, without what is secret of it."""

    id: str
    name: str
    scopes: list[Scope]
    created_at: ResponseTime
    expires_at: ResponseTime | None
    per_minute: int | None = Field(description="Null leaves it to the server, 0 sets no limit")


class TokenList(BaseModel):
    items: list[TokenAnswer]


class TokenRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "scopes": ["run"]}]})

    name: str = Field(min_length=1, max_length=TOKENS_NAME_CHARS_MAX, description="Who will use it")
    scopes: list[EnumValue[Scope]] = Field(min_length=1, max_length=len(Scope))
    days: int | None = Field(
        default=None,
        ge=1,
        le=TOKEN_DAYS_MAX,
        description="How long it is good; by default for ever",
    )
    per_minute: int | None = Field(default=None, ge=0, le=1_000_000)


class NewTokenAnswer(BaseModel):
    """`token` is shown once, and stored as a hash only."""

    id: str
    name: str
    scopes: list[Scope]
    token: str


# Changes of executions, as answers have them.


class ChangeAnswer(BaseModel):
    """`status` is null when only something inside the execution is new."""

    execution_id: str
    status: ExecutionState | None
    position: str


class Changes(BaseModel):
    items: list[ChangeAnswer]
    position: str = Field(description="Give this as `after` to get what comes next")
    has_gap: bool = Field(description="Something is not known any more: list anew")


# What programs look up: executions by id, definitions by hash, and what the server is.


class FoundList(BaseModel):
    items: list[Listed]


class PartitionOf(BaseModel):
    """Where an execution is decided."""

    partition: int


class ServerAnswer(BaseModel):
    """`engine` says where tasks run: in the server's own process, or by workers around a Redis."""

    version: str
    engine: Literal["embedded", "redis"]


# What is done to many executions, as requests and answers have it.


class BulkRequest(ExecutionQuery):
    """Which executions, in steps: give `next` of the answer as `after`, until it is null."""

    model_config = ConfigDict(strict=True)

    every: bool = Field(default=False, description="Needed when nothing says which ones")
    after: str | None = Field(default=None, max_length=4_000)


class BulkCancelRequest(BulkRequest):
    reason: str = Field(default="", max_length=10_000)
    force: bool = Field(default=False, description="Clean-up nodes do not run either")


class BulkRerunRequest(BulkRequest, RerunOptions):
    """By default those that have failed; each once for each `key`."""

    key: str = Field(default="", max_length=500)


class BulkFailureAnswer(BaseModel):
    execution_id: str
    error: str


class BulkAnswer(BaseModel):
    """`ids` are what was cancelled, or the new executions."""

    ids: list[str]
    known: int = Field(description="Had been rerun so before")
    failed: int
    failures: list[BulkFailureAnswer] = Field(description="The first hundred, with the reason")
    next: str | None = Field(description="Give this as `after` to go on; null when all is done")
