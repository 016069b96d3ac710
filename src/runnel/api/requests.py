"""What requests hold: bodies as strict as workflow files, parameters and filters."""

from collections.abc import Iterator
from datetime import datetime
from math import inf
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Header, Path, Query, Request
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from runnel.api.security.tokens import NAME_CHARS_MAX as TOKEN_NAME_CHARS_MAX
from runnel.api.state import AppState
from runnel.authoring.documents import read_document
from runnel.authoring.documents.files import parse_data, parse_json
from runnel.client.idempotency import KEY_CHARS_MAX
from runnel.client.reruns import RerunSpec
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.validation.checks import NAME, NAME_CHARS_MAX
from runnel.core.values import Json
from runnel.core.workflow import CHILD_WORKFLOW, Workflow
from runnel.errors import InputError, InvalidWorkflowError, MalformedBodyError, NotFoundError
from runnel.ports.archive import ExecutionFilter, PageCursor
from runnel.views.token import Scope
from runnel.views.trigger import TOKEN_HEADER, Overlap, WebhookKind

YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")


class StrictRequest(Request):
    async def json(self) -> Any:
        """Raises MalformedBodyError: for NaN, a key given twice, too much nesting, too."""
        return parse_json_body(await self.body())


def parse_json_body(body: bytes) -> Json:
    text = _decode_body(body)
    try:
        return parse_json(text, source="the body")
    except InvalidWorkflowError as error:
        raise _make_malformed_body_error(error) from error


def parse_document_body(body: bytes, media_type: str) -> Json:
    """A workflow as it was written, before it is judged."""
    suffix = ".yaml" if media_type in YAML_TYPES else ".json"
    try:
        return parse_data(_decode_body(body), source="the body", suffix=suffix)
    except InvalidWorkflowError as error:
        raise _make_malformed_body_error(error) from error


def _decode_body(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise MalformedBodyError(
            f"the body is not UTF-8 text, from byte {error.start} on"
        ) from error


def _make_malformed_body_error(error: InvalidWorkflowError) -> MalformedBodyError:
    return MalformedBodyError(f"the body: {error.problems[0]}")


# Workflow documents that come in over the network: read, and their children by name found.


async def read_workflow(app_state: AppState, body: bytes, media_type: str) -> Workflow:
    """Raises MalformedBodyError, InvalidWorkflowError with all problems of its shape.

    It can't name files; child workflows that it names are those that are stored, as they are now.
    """
    data = parse_document_body(body, media_type)
    children: dict[str, Workflow] = {}
    for name in _find_child_workflow_names(data):
        try:
            children[name] = (await app_state.client.library.find(name)).graph.workflow
        except NotFoundError:
            continue  # the reader says where it is named
    return read_document(data, resolve=children.get, retry=app_state.settings.retry)


def _find_child_workflow_names(data: Json) -> Iterator[str]:
    """Of the child workflows that a document, or one that is written down in it, names."""
    nodes = data.get("nodes") if isinstance(data, dict) else None
    listed = list(nodes.values()) if isinstance(nodes, dict) else nodes
    for node in listed if isinstance(listed, list) else []:
        config = node.get("config") if isinstance(node, dict) else None
        if isinstance(config, dict) and node.get("handler") == CHILD_WORKFLOW:
            if NAME.fits(config.get("workflow")):
                yield config["workflow"]
            yield from _find_child_workflow_names(config.get("definition"))


VERSION_MAX = 2**31 - 1


# Bodies of requests: JSON is taken as it is, and nothing is made of it that it is not.

T = TypeVar("T")


class RequestBody(BaseModel):
    """A 1 is no true, "5" is no number, and what is not known is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _reject_numeric_time(value: object) -> object:
    """A number is no time: nobody knows whether seconds are meant, or milliseconds."""
    if isinstance(value, datetime):  # of a model that was read before
        return value
    if not isinstance(value, str) or value.strip("+-.0123456789") == "":
        raise PydanticCustomError("moment", "expected a time like 2026-01-31T09:30:00Z")
    return value


RequestTime: TypeAlias = Annotated[
    AwareDatetime, BeforeValidator(_reject_numeric_time), Field(strict=False)
]
"""A time in a request, with its offset from UTC."""

EnumValue: TypeAlias = Annotated[T, Field(strict=False)]
"""One of the names of an enumeration: JSON has them as texts."""


# Parameters that several routes share.

LIMIT_MAX = 500

ExecutionIdParam: TypeAlias = Annotated[
    str, Path(alias="execution_id", description="An execution's whole id", max_length=500)
]
WorkflowNameParam: TypeAlias = Annotated[
    str, Path(alias="name", description="The name of a workflow", max_length=NAME_CHARS_MAX)
]
LimitParam: TypeAlias = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many at most")]
AfterParam: TypeAlias = Annotated[
    str | None, Query(description="`next` of the previous page", max_length=1_000)
]
VersionParam: TypeAlias = Annotated[
    int | None, Query(ge=1, le=VERSION_MAX, description="By default the newest")
]


def _decode_header(value: object) -> object:
    """Servers read headers as Latin-1: a key in another language comes as UTF-8."""
    if not isinstance(value, str):
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


IdempotencyKeyHeader: TypeAlias = Annotated[
    str | None,
    BeforeValidator(_decode_header),
    Header(
        alias="Idempotency-Key",
        description="The same key is the same call: it is acted on once",
        min_length=1,
        max_length=KEY_CHARS_MAX,
    ),
]


# Which executions are meant: the same parameters for lists, counts and what is done to many.

FILTER_CHARS_MAX = 500
LABELS_MAX = 20


class ExecutionQuery(BaseModel):
    """All that is given must be so."""

    model_config = ConfigDict(extra="forbid")

    status: list[EnumValue[ExecutionState]] = Field(default=[], description="Any of these")
    workflow: str | None = Field(default=None, max_length=FILTER_CHARS_MAX)
    label: list[str] = Field(
        default=[],
        max_length=LABELS_MAX,
        description="`key=value`, may be repeated",
        examples=[["customer=acme"]],
    )
    created_from: RequestTime | None = None
    created_before: RequestTime | None = None
    text: str = Field(
        default="",
        max_length=FILTER_CHARS_MAX,
        description="Part of the id, the workflow, the error or a label's value",
    )
    rerun_of: str | None = Field(default=None, max_length=FILTER_CHARS_MAX)
    parent: str | None = Field(default=None, max_length=FILTER_CHARS_MAX)
    children: bool = Field(default=False, description="Child executions too")

    def to_filter(self, *, limit: int = 50, after: str | None = None) -> ExecutionFilter:
        """Raises InputError."""
        begin, end = self.created_from, self.created_before
        return ExecutionFilter(
            states=tuple(dict.fromkeys(self.status)),
            workflow=self.workflow,
            with_children=self.children,
            labels=dict(map(_parse_label, self.label)),
            created_from=-inf if begin is None else begin.timestamp(),
            created_before=inf if end is None else end.timestamp(),
            text=self.text,
            rerun_of=None if self.rerun_of is None else ExecutionId(self.rerun_of),
            parent=None if self.parent is None else ExecutionId(self.parent),
            after=None if after is None else PageCursor(after),
            limit=limit,
        )


class ExecutionPageQuery(ExecutionQuery):
    limit: int = Field(default=50, ge=1, le=500, description="How many at most")
    after: str | None = Field(
        default=None, max_length=4_000, description="`next` of the previous page"
    )


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"label: expected key=value, got '{text}'")
    return key, value


# Bodies about executions.


class TriggerRequest(RequestBody):
    """What a held execution starts with."""

    input_params: Any = Field(
        default=None, description="By default the input that it was submitted with"
    )


class CancelRequest(RequestBody):
    reason: str = Field(default="", description="It is kept with the execution")
    force: bool = Field(default=False, description="Clean-up nodes do not run either")


class SignalRequest(RequestBody):
    name: str = Field(description="What the node waits for")
    payload: Any = None
    signal_id: str | None = Field(
        default=None, description="The same one is taken once, however often it is sent"
    )


class RunRequest(RequestBody):
    """What an execution of a stored workflow begins with."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": {"n": 1}}]})

    input: Any = Field(default=None, description="By default an empty object")
    labels: dict[str, str] = Field(default={})
    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="By default the newest"
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


# Bodies about many executions at once.


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


# Bodies about dead letters.

RETRIED_EXECUTIONS_MAX = 100


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


# Bodies about schedules, webhooks and tokens.

TOKEN_DAYS_MAX = 36_500


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


class DispatchRequest(RequestBody):
    now: RequestTime | None = Field(
        default=None, description="The time that an outside scheduler goes by"
    )


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


class TokenRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "scopes": ["run"]}]})

    name: str = Field(min_length=1, max_length=TOKEN_NAME_CHARS_MAX, description="Who will use it")
    scopes: list[EnumValue[Scope]] = Field(min_length=1, max_length=len(Scope))
    days: int | None = Field(
        default=None,
        ge=1,
        le=TOKEN_DAYS_MAX,
        description="How long it is good; by default for ever",
    )
    per_minute: int | None = Field(default=None, ge=0, le=1_000_000)
