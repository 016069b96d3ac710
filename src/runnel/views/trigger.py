"""Schedules and webhooks: what callers give, and what they are shown."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.views import Timestamp

TOKEN_HEADER = "x-webhook-token"
WEBHOOK_FORMAT = 1

ZonedTime: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""`2026-03-29T03:00:00+02:00`: as the clocks of a schedule's zone show it."""


class Overlap(StrEnum):
    """What a tick does while the last execution of its schedule is not final."""

    ALLOW = "allow"
    """Starts another one."""
    SKIP = "skip"
    """Nothing; it is counted."""
    CANCEL = "cancel"
    """Cancels that one and starts another."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Runs `workflow` (its newest version, unless one is named) by `cron` or every `interval_s`.

    `input` may hold templates: `{{ tick.date }}`, see `tick_document`. Times are seconds since the
    epoch; `starts_at` is what intervals are counted from. After an outage, `catch_up` of the ticks
    that were missed are made up for at most: the last ones. It is stored as it is here.
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
    """Labels of Runnel's own. For the command line alone: one of them names the folder that the
    embedded engine imports functions from."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, what has become of it, and its next ticks."""

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
    skipped: Annotated[int, Meta(description="Because the execution before was not final")]
    missed: Annotated[int, Meta(description="In an outage, for good")]
    failed: Annotated[int, Meta(description="They could not be started; `last_error` says why")]
    last_tick: Timestamp | None
    last_execution_id: ExecutionId | None
    last_skipped: Timestamp | None
    last_error: str | None

    @property
    def schedule(self) -> Schedule:
        """The schedule alone, as it could be added again."""
        return Schedule(
            id=self.id,
            workflow=self.workflow,
            version=self.version,
            input=self.input,
            labels=self.labels,
            cron=self.cron,
            interval_s=self.interval_s,
            timezone=self.timezone,
            overlap=self.overlap,
            catch_up=self.catch_up,
            is_paused=self.is_paused,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
        )


class FiredTick(msgspec.Struct, frozen=True, kw_only=True):
    """A tick that a call has fired: the execution that it started, or why there is none."""

    schedule_id: str
    tick: Timestamp
    execution_id: ExecutionId | None
    error: str | None


class FiredTicks(msgspec.Struct, frozen=True, kw_only=True):
    """What was fired by this call; ticks that somebody else has fired are not in it."""

    items: Sequence[FiredTick]


class WebhookKind(StrEnum):
    """How a caller proves who it is."""

    NONE = "none"
    """Not at all: for servers that only the right ones can reach."""
    TOKEN = "token"
    """The secret itself, in a header."""
    GITHUB = "github"
    """A signature of the body in X-Hub-Signature-256."""
    SLACK = "slack"
    """A signature of time and body in X-Slack-Signature."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """There is one for each workflow. `secret` is a name: its value is known to the processes that
    answer calls, and stored nowhere.

    `mapping` makes the input of `body`, `headers` and `query`; without one, the input is an object
    of all three. `delivery_id` is a template of what tells one delivery from the next, for callers
    that say it in a place of their own. It is stored as it is here.
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


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook; of its secret, nothing but the name."""

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
    """The execution of a delivery, which is stored; the same for one that came before."""

    execution_id: ExecutionId
    run_id: ExecutionId
    status: ExecutionState


class ChallengeReply(msgspec.Struct, frozen=True, kw_only=True):
    """What Slack asks a new address for."""

    challenge: str
