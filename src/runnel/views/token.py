"""Views of API tokens, and the scopes that a token can have."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from runnel.views import Timestamp


class Scope(StrEnum):
    """A permission of a token. Each scope includes the scopes that are declared before it."""

    READ = "read"
    RUN = "run"
    OPERATE = "operate"
    ADMIN = "admin"


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    name: str
    scopes: Sequence[Scope]
    created_at: Timestamp
    expires_at: Timestamp | None
    per_minute: Annotated[
        int | None, Meta(description="Requests per minute; null: the server's limit, 0: no limit")
    ]


class NewTokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A new token. `token` is returned only once, because the store has only its hash."""

    id: str
    name: str
    scopes: Sequence[Scope]
    token: str
