"""Bodies of requests: JSON as strict as that of workflow files, and workflows in YAML too."""

from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from math import inf
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Header, Path, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from runnel.api.state import AppState
from runnel.authoring.documents import read_document
from runnel.authoring.documents.files import parse_data, parse_json
from runnel.client.idempotency import KEY_CHARS_MAX
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.validation.checks import NAME, NAME_CHARS_MAX
from runnel.core.values import Json
from runnel.core.workflow import CHILD_WORKFLOW, Workflow
from runnel.errors import InputError, InvalidWorkflowError, MalformedBodyError, NotFoundError
from runnel.ports.archive import ExecutionFilter, PageCursor

YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")


class StrictRequest(Request):
    async def json(self) -> Any:
        """Raises MalformedBodyError: for NaN, a key given twice, too much nesting, too."""
        return parse_json_body(await self.body())


class StrictRoute(APIRoute):
    """Every route has it, so that no body is read otherwise."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


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
