"""Tokens as requests and answers have them."""

from pydantic import BaseModel, ConfigDict, Field

from runnel.api.models.asked import Asked, Named
from runnel.api.models.moments import Moment
from runnel.api.security.scopes import Scope
from runnel.api.security.tokens import NAME_CHARS_MAX

DAYS_MAX = 36_500


class TokenAnswer(BaseModel):
    """A token, without what is secret of it."""

    id: str
    name: str
    scopes: list[Scope]
    created_at: Moment
    expires_at: Moment | None
    per_minute: int | None = Field(description="Null leaves it to the server, 0 sets no limit")


class TokenList(BaseModel):
    items: list[TokenAnswer]


class TokenRequest(Asked):
    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "ci", "scopes": ["run"]}]})

    name: str = Field(min_length=1, max_length=NAME_CHARS_MAX, description="Who will use it")
    scopes: list[Named[Scope]] = Field(min_length=1, max_length=len(Scope))
    days: int | None = Field(
        default=None, ge=1, le=DAYS_MAX, description="How long it is good; by default for ever"
    )
    per_minute: int | None = Field(default=None, ge=0, le=1_000_000)


class NewTokenAnswer(BaseModel):
    """`token` is shown once, and stored as a hash only."""

    id: str
    name: str
    scopes: list[Scope]
    token: str
