"""Bodies, parameters and filters of requests, validated as strictly as workflow files."""

import asyncio
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
from runnel.client.definitions import AUTHOR_CHARS_MAX
from runnel.client.idempotency import KEY_CHARS_MAX
from runnel.client.reruns import RerunSpec
from runnel.client.submissions import INPUTS_MAX
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.validation.checks import NAME, NAME_CHARS_MAX
from runnel.core.values import Json
from runnel.core.workflow import CHILD_WORKFLOW, PRIORITY_MAX, Workflow
from runnel.errors import InputError, InvalidWorkflowError, MalformedBodyError, NotFoundError
from runnel.ports.archive import ExecutionFilter, PageCursor
from runnel.views.token import Scope
from runnel.views.trigger import TOKEN_HEADER, Overlap, WebhookKind

YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")


class StrictRequest(Request):
    """A request whose JSON body must not have NaN, duplicate keys or too deep nesting."""

    async def json(self) -> Any:
        """Parses the body; raises MalformedBodyError."""
        return parse_json_body(await self.body())


def parse_json_body(body: bytes) -> Json:
    text = _decode_body(body)
    try:
        return parse_json(text, source="the body")
    except InvalidWorkflowError as error:
        raise _make_malformed_body_error(error) from error


def parse_document_body(body: bytes, media_type: str) -> Json:
    """Parses a workflow document, without validating the workflow."""
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
            f"the body is not UTF-8 text: the byte at position {error.start} is not valid"
        ) from error


def _make_malformed_body_error(error: InvalidWorkflowError) -> MalformedBodyError:
    return MalformedBodyError(f"the body: {error.problems[0]}")


# Workflow documents in request bodies.


async def read_workflow(app_state: AppState, body: bytes, media_type: str) -> Workflow:
    """Reads the workflow in a document.

    Raises MalformedBodyError, or InvalidWorkflowError with all problems of the document.

    The document can't refer to files. A child workflow that is given by name is its newest stored
    version.
    """
    # A thread reads the document: the check of a large schema, and YAML, take long.
    data = await asyncio.to_thread(parse_document_body, body, media_type)
    children: dict[str, Workflow] = {}
    for name in _find_child_workflow_names(data):
        try:
            children[name] = (await app_state.client.library.find(name)).graph.workflow
        except NotFoundError:
            continue  # read_document reports the unknown name and its place
    return await asyncio.to_thread(
        read_document, data, resolve=children.get, retry=app_state.settings.retry
    )


def _find_child_workflow_names(data: Json) -> Iterator[str]:
    """Yields the names of child workflows in a document and in the documents nested in it."""
    nodes = data.get("nodes") if isinstance(data, dict) else None
    listed = list(nodes.values()) if isinstance(nodes, dict) else nodes
    for node in listed if isinstance(listed, list) else []:
        config = node.get("config") if isinstance(node, dict) else None
        if isinstance(config, dict) and node.get("handler") == CHILD_WORKFLOW:
            if NAME.fits(config.get("workflow")):
                yield config["workflow"]
            yield from _find_child_workflow_names(config.get("definition"))


VERSION_MAX = 2**31 - 1


# Request bodies.

T = TypeVar("T")


class RequestBody(BaseModel):
    """The base of request bodies. Strict: no type coercion; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _reject_numeric_time(value: object) -> object:
    """Raises an error for a number, which could mean seconds or milliseconds."""
    if isinstance(value, datetime):  # from a model that was validated before
        return value
    if not isinstance(value, str) or value.strip("+-.0123456789") == "":
        raise PydanticCustomError("moment", "expected a time like 2026-01-31T09:30:00Z")
    return value


RequestTime: TypeAlias = Annotated[
    AwareDatetime, BeforeValidator(_reject_numeric_time), Field(strict=False)
]
"""A time with its offset from UTC."""

EnumValue: TypeAlias = Annotated[T, Field(strict=False)]
"""A member of an enumeration, which JSON has as a text."""


# Parameters that several routes use.

LIMIT_MAX = 500
WAIT_S_MAX = 60.0

ExecutionIdParam: TypeAlias = Annotated[
    ExecutionId,
    Path(alias="execution_id", description="The complete id of an execution", max_length=500),
]
WorkflowNameParam: TypeAlias = Annotated[
    str, Path(alias="name", description="The name of a workflow", max_length=NAME_CHARS_MAX)
]
LimitParam: TypeAlias = Annotated[
    int, Query(ge=1, le=LIMIT_MAX, description="Maximum number of items")
]
AfterParam: TypeAlias = Annotated[
    str | None, Query(description="The value of `next` in the previous page", max_length=1_000)
]
VersionParam: TypeAlias = Annotated[
    int | None, Query(ge=1, le=VERSION_MAX, description="The newest version by default")
]


def _decode_header(value: object) -> object:
    """Decodes UTF-8 in a header: servers decode headers as Latin-1."""
    if not isinstance(value, str):
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


PriorityField: TypeAlias = Annotated[
    int | None,
    Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="The priority of the workflow by default"),
]
IdempotencyKey: TypeAlias = Annotated[str, Field(min_length=1, max_length=KEY_CHARS_MAX)]

IdempotencyKeyHeader: TypeAlias = Annotated[
    str | None,
    BeforeValidator(_decode_header),
    Header(
        alias="Idempotency-Key",
        description="Calls with the same key take effect once",
        min_length=1,
        max_length=KEY_CHARS_MAX,
    ),
]


# The filter of executions, which lists, counts and bulk operations share.

FILTER_CHARS_MAX = 500
LABELS_MAX = 20


class ExecutionQuery(BaseModel):
    """Matches executions that satisfy all given conditions."""

    model_config = ConfigDict(extra="forbid")

    status: list[EnumValue[ExecutionState]] = Field(default=[], description="One of these states")
    workflow: str | None = Field(default=None, max_length=FILTER_CHARS_MAX)
    label: list[str] = Field(
        default=[],
        max_length=LABELS_MAX,
        description="`key=value`; may be repeated",
        examples=[["customer=acme"]],
    )
    created_from: RequestTime | None = None
    created_before: RequestTime | None = None
    text: str = Field(
        default="",
        max_length=FILTER_CHARS_MAX,
        description="A part of the id, the workflow, the error or the value of a label",
    )
    rerun_of: str | None = Field(default=None, max_length=FILTER_CHARS_MAX)
    parent: str | None = Field(default=None, max_length=FILTER_CHARS_MAX)
    children: bool = Field(default=False, description="Include child executions")

    def to_filter(self, *, limit: int = 50, after: str | None = None) -> ExecutionFilter:
        """Returns the filter of the store; raises InputError."""
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
    limit: int = Field(default=50, ge=1, le=500, description="Maximum number of items")
    after: str | None = Field(
        default=None, max_length=4_000, description="The value of `next` in the previous page"
    )


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"label: expected key=value, got '{text}'")
    return key, value


# Request bodies of executions.


class TriggerRequest(RequestBody):
    """The input of a held execution."""

    input_params: Any = Field(default=None, description="By default, the input that was submitted")


class CancelRequest(RequestBody):
    reason: str = Field(default="", description="Stored with the execution")
    force: bool = Field(default=False, description="Do not run clean-up nodes either")


class SignalRequest(RequestBody):
    name: str = Field(description="The name of the signal that a node waits for")
    payload: Any = None
    signal_id: str | None = Field(
        default=None, description="Signals with the same id take effect once"
    )


class RunRequest(RequestBody):
    """Input, labels, priority and version of a new execution."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": {"n": 1}}]})

    input: Any = Field(default=None, description="An empty object by default")
    labels: dict[str, str] = Field(default={})
    priority: PriorityField = None
    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="The active version by default"
    )
    hold: bool = Field(
        default=False,
        description="The execution waits for `POST /v1/workflow/trigger/{execution_id}`, which "
        "checks the input and may replace it",
    )


class BatchRequest(RequestBody):
    """Inputs, labels, priority and version of new executions: one execution for each input."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"inputs": [{"n": 1}, {"n": 2}]}]})

    inputs: list[Any] = Field(min_length=1, max_length=INPUTS_MAX)
    labels: dict[str, str] = Field(default={}, description="The labels of each execution")
    priority: PriorityField = None
    version: int | None = Field(
        default=None, ge=1, le=VERSION_MAX, description="The active version by default"
    )
    idempotency_keys: list[IdempotencyKey] | None = Field(
        default=None,
        max_length=INPUTS_MAX,
        description="One key for each input: an input with a known key is not started again. By "
        "default, the header `Idempotency-Key` with `:` and the index of the input",
    )


class ActivateRequest(RequestBody):
    """The version that runs by name."""

    version: int | None = Field(
        ge=1, le=VERSION_MAX, description="null runs the newest version, also in future"
    )
    author: str = Field(
        default="",
        max_length=AUTHOR_CHARS_MAX,
        description="Used for a request without a token; else the name of the token is the author",
    )


class RerunOptions(RequestBody):
    """The nodes that run again: by default those that did not complete, and their descendants."""

    nodes: list[str] = Field(
        default=[], max_length=1_000, description="Run these nodes and their descendants again"
    )
    whole: bool | None = Field(default=None, description="Run all nodes again")
    newest: bool = Field(default=False, description="Use the newest version of the workflow")
    configs: dict[str, Any] = Field(default={}, description="New configs by node id")

    def to_rerun(self) -> RerunSpec:
        return RerunSpec(
            again=self.nodes,
            is_whole=self.whole,
            is_newest=self.newest,
            configs=self.configs,
        )


class RerunRequest(RerunOptions):
    """Without options, reruns the nodes that did not complete, with the same input."""

    input: Any = None


# Request bodies of bulk operations.


class BulkRequest(ExecutionQuery):
    """A filter, and the position: pass `next` of the response as `after` until `next` is null."""

    model_config = ConfigDict(strict=True)

    every: bool = Field(
        default=False, description="Required if there is no filter: matches all executions"
    )
    after: str | None = Field(default=None, max_length=4_000)


class BulkCancelRequest(BulkRequest):
    reason: str = Field(default="", max_length=10_000)
    force: bool = Field(default=False, description="Do not run clean-up nodes either")


class BulkRerunRequest(BulkRequest, RerunOptions):
    """Without `status`, matches failed executions. An execution is rerun once per `key`."""

    key: str = Field(default="", max_length=500)


# Request bodies of dead letters.

RETRIED_EXECUTIONS_MAX = 100


class RetryRequest(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"configs": {"parse": {"year": 2026}}}]}
    )

    configs: dict[str, Any] = Field(default={}, description="New configs by node id")


class Selection(RequestBody):
    """Matches dead letters that satisfy all given fields."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queue": "python"}, {"all": True}]})

    queue: str | None = Field(default=None, max_length=NAME_CHARS_MAX)
    workflow: str | None = Field(default=None, max_length=NAME_CHARS_MAX)
    execution: str = Field(
        default="", max_length=500, description="The beginning of an execution id"
    )
    older_than_s: float = Field(default=0.0, ge=0, le=1e9, description="Minimum age in seconds")
    all: bool = Field(
        default=False, description="Required if there is no other field: matches all dead letters"
    )


class BulkRetryRequest(Selection):
    limit: int = Field(
        default=RETRIED_EXECUTIONS_MAX,
        ge=1,
        le=RETRIED_EXECUTIONS_MAX,
        description="Maximum number of executions",
    )


# Request bodies of schedules, webhooks and tokens.

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
        default=None, ge=1, le=VERSION_MAX, description="The newest version at each tick by default"
    )
    input: Any = Field(
        default={}, description="May contain templates: `{{ tick.at }}`, `{{ tick.date }}`"
    )
    labels: dict[str, str] = Field(default={})
    cron: str | None = Field(
        default=None, max_length=200, description="Minute hour day month weekday, or @daily"
    )
    interval_s: float | None = Field(default=None, description="From one second to ten years")
    timezone: str = Field(default="UTC", max_length=100)
    overlap: EnumValue[Overlap] = Field(
        default=Overlap.ALLOW,
        description="If the previous execution is not final: start another one, skip the tick, or "
        "cancel the previous one",
    )
    catch_up: int = Field(
        default=1, ge=0, le=100, description="How many missed ticks are fired after an outage"
    )
    is_paused: bool = False
    starts_at: RequestTime | None = None
    ends_at: RequestTime | None = None


class NewSchedule(ScheduleBody):
    id: str = Field(max_length=100, description="Letters, digits, '.', '_' and '-'")


class DispatchRequest(RequestBody):
    now: RequestTime | None = Field(
        default=None, description="The current time of the external scheduler"
    )


class WebhookBody(RequestBody):
    """How a call is authenticated, and how it becomes the input of an execution."""

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
        default=None, ge=1, le=VERSION_MAX, description="The newest version at each call by default"
    )
    kind: EnumValue[WebhookKind] = Field(
        default=WebhookKind.TOKEN, description="How a call is authenticated"
    )
    secret: str | None = Field(
        default=None,
        max_length=100,
        description="The name of a secret on the server: `github` is `RUNNEL_SECRET_GITHUB`",
    )
    header: str = Field(
        default=TOKEN_HEADER, max_length=100, description="The header that contains the token"
    )
    mapping: Any = Field(
        default=None,
        description="A template of the input; an object of `body`, `headers`, `query` by default",
    )
    delivery_id: str | None = Field(
        default=None, max_length=1_000, description="A template of the id of a delivery"
    )
    labels: dict[str, str] = Field(default={})


class TokenRequest(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "scopes": ["run"]}]})

    name: str = Field(
        min_length=1,
        max_length=TOKEN_NAME_CHARS_MAX,
        description="The program or person that uses the token",
    )
    scopes: list[EnumValue[Scope]] = Field(min_length=1, max_length=len(Scope))
    days: int | None = Field(
        default=None,
        ge=1,
        le=TOKEN_DAYS_MAX,
        description="Days until the token expires; without a limit by default",
    )
    per_minute: int | None = Field(default=None, ge=0, le=1_000_000)
