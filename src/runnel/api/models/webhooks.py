"""Webhooks as requests and answers have them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.models.asked import Asked, Named
from runnel.api.models.moments import Moment
from runnel.api.models.workflows import VERSION_MAX
from runnel.core.states import ExecutionState
from runnel.triggers.webhook import TOKEN_HEADER, WebhookKind


class WebhookBody(Asked):
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
    kind: Named[WebhookKind] = Field(
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
    created_at: Moment


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
