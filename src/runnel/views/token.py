"""Tokens of the API, and what they allow."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from runnel.views import Timestamp


class Scope(StrEnum):
    """What a token allows: each scope includes those before it."""

    READ = "read"
    RUN = "run"
    OPERATE = "operate"
    ADMIN = "admin"


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without what is secret of it."""

    id: str
    name: str
    scopes: Sequence[Scope]
    created_at: Timestamp
    expires_at: Timestamp | None
    per_minute: Annotated[
        int | None, Meta(description="Null leaves it to the server, 0 sets no limit")
    ]


class NewTokenView(msgspec.Struct, frozen=True, kw_only=True):
    """`token` is shown once, and stored as a hash only."""

    id: str
    name: str
    scopes: Sequence[Scope]
    token: str
