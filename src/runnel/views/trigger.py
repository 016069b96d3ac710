"""Schedules and webhooks: the values that callers give, and their views."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.core.message_text import describe_value
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.errors import InputError
from runnel.views import Timestamp

TOKEN_HEADER = "x-webhook-token"
WEBHOOK_FORMAT = 1

ZonedTime: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time in the time zone of the schedule, such as `2026-03-29T03:00:00+02:00`."""


class Overlap(StrEnum):
    """The action of a tick if the last execution of the schedule is not final."""

    ALLOW = "allow"
    """Starts another execution."""
    SKIP = "skip"
    """Starts no execution; the tick is counted as skipped."""
    CANCEL = "cancel"
    """Cancels the running execution and starts another one."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Runs `workflow` by `cron` or every `interval_s`; by default its newest version.

    `input` may hold templates such as `{{ tick.date }}`. Times are seconds since the epoch;
    intervals are counted from `starts_at`. After an outage, the last `catch_up` of the missed ticks
    are fired. This struct is stored: its fields never change their names.
    """

    id: str
    workflow: str
    version: int | None = None
    input: Json = {}
    labels: dict[str, str] = {}
    cron: str | None = None
    interval_s: float | None = None
    timezone: str = "UTC"
    overlap: Overlap = Overlap.ALLOW
    catch_up: int = 1
    is_paused: bool = False
    starts_at: float | None = None
    ends_at: float | None = None
    own_labels: dict[str, str] = {}
    """Labels that Runnel itself sets, on the command line only: one of them names the folder from
    which the embedded engine imports functions."""

    def __post_init__(self) -> None:
        _read_choice(self, "overlap", Overlap)


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its counters, its last tick and its next ticks."""

    id: str
    workflow: str
    version: int | None
    input: Json
    labels: dict[str, str]
    cron: str | None
    interval_s: float | None
    timezone: str
    overlap: Overlap
    catch_up: int
    is_paused: bool
    starts_at: Timestamp | None
    ends_at: Timestamp | None
    created_at: Timestamp
    next_ticks: Sequence[ZonedTime]
    fired: int
    skipped: Annotated[
        int, Meta(description="Ticks skipped because the last execution was not final")
    ]
    missed: Annotated[int, Meta(description="Ticks during an outage that will not be fired")]
    failed: Annotated[
        int, Meta(description="Ticks that could not start an execution; see `last_error`")
    ]
    last_tick: Timestamp | None
    last_execution_id: ExecutionId | None
    last_skipped: Timestamp | None
    last_error: str | None

    @property
    def schedule(self) -> Schedule:
        """Returns the schedule without counters and ticks, as `Schedules.add` takes it."""
        names = set(Schedule.__struct_fields__) - {"own_labels"}
        return Schedule(**{name: getattr(self, name) for name in names})


class FiredTick(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that was fired, with the execution that it started, or with the error."""

    schedule_id: str
    tick: Timestamp
    execution_id: ExecutionId | None
    error: str | None


class FiredTicks(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks that this call has fired; ticks that another process fired are not included."""

    items: Sequence[FiredTick]


class WebhookKind(StrEnum):
    """How a caller of a webhook authenticates itself."""

    NONE = "none"
    """No authentication, for servers that only trusted callers can reach."""
    TOKEN = "token"
    """The request has the secret itself in a header."""
    GITHUB = "github"
    """The request has a signature of the body in X-Hub-Signature-256."""
    SLACK = "slack"
    """The request has a signature of time and body in X-Slack-Signature."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook: an address that another service calls to run a workflow.

    A workflow has at most one webhook.

    `secret` is the name of a secret. The secret's value is not stored; only the processes that
    serve the webhook have it. `mapping` is a template of the input with `body`, `headers` and
    `query`; without `mapping`, the input is an object with these three fields. `delivery_id` is a
    template of the id of a delivery, for services that send it in an unusual place. This struct is
    stored: its fields never change their names.
    """

    workflow: str
    version: int | None = None
    kind: WebhookKind = WebhookKind.TOKEN
    secret: str | None = None
    header: str = TOKEN_HEADER
    mapping: Json = None
    delivery_id: str | None = None
    labels: dict[str, str] = {}
    created_at: float = 0.0
    format: int = WEBHOOK_FORMAT

    def __post_init__(self) -> None:
        _read_choice(self, "kind", WebhookKind)


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook, with the name of its secret."""

    workflow: str
    version: int | None
    kind: WebhookKind
    secret: str | None
    header: str | None
    mapping: Json
    delivery_id: str | None
    labels: dict[str, str]
    created_at: Timestamp


class AcceptedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """The execution that a webhook delivery started; a repeated delivery has the same execution."""

    execution_id: ExecutionId
    run_id: ExecutionId
    status: ExecutionState


class ChallengeReply(msgspec.Struct, frozen=True, kw_only=True):
    """The response to the challenge that Slack sends to a new address."""

    challenge: str


def _read_choice(holder: msgspec.Struct, field: str, choices: type[StrEnum]) -> None:
    """Replaces the text of a field by the member of `choices`; raises InputError for others."""
    value = getattr(holder, field)
    if type(value) is choices:
        return
    try:
        msgspec.structs.force_setattr(holder, field, choices(value))
    except ValueError:
        raise InputError(
            f"{type(holder).__name__}: {field}: expected one of {', '.join(choices)}, got "
            f"{describe_value(value)}"
        ) from None
