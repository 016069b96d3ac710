"""Bearer tokens of the API. The text of a token is shown once; the store has only its hash."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from runnel.authoring.payloads import check_text
from runnel.core.message_text import escape_unprintable
from runnel.errors import (
    InputError,
    MissingScopeError,
    NotAuthenticatedError,
    NotFoundError,
    StoreError,
)
from runnel.ports.clock import Clock
from runnel.ports.records import Records
from runnel.views import Timestamp, make_timestamp
from runnel.views.token import NewTokenView, Scope, TokenView

_SCOPES_ASCENDING = list(Scope)


def check_scope(needed: Scope, held: tuple[Scope, ...]) -> None:
    """Raises MissingScopeError if no held scope is or includes the needed scope."""
    rank = _SCOPES_ASCENDING.index
    if not any(rank(scope) >= rank(needed) for scope in held):
        raise MissingScopeError(needed, held)


RECORD_KIND = "token"
TOKEN_PREFIX = "rnl"
NAME_CHARS_MAX = 100
TOKENS_MAX = 1_000
_ID_BYTES, _SECRET_BYTES = 4, 32
# How long another process may still accept a revoked token.
REFRESH_INTERVAL_S = 3.0
# How long cached tokens are accepted while the store can't be reached.
CACHE_AGE_S_MAX = 300.0


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A stored token. `per_minute` None uses the limit of the settings; 0 means no limit."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_at: float
    expires_at: float | None = None
    per_minute: int | None = None

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class TokenStore:
    """The tokens of a store: implements `Tokens`, and authenticates requests.

    Requests use a cache that is at most REFRESH_INTERVAL_S old.
    """

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._cached: Mapping[str, ApiToken] = {}
        self._read_at: float | None = None
        self._refresh_tried_at = 0.0

    async def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        days: int | None = None,
        per_minute: int | None = None,
    ) -> NewTokenView:
        """Stores a new token; the view has its text, which is not stored. Raises InputError."""
        check_text(name, "the name of a token", chars_max=NAME_CHARS_MAX)
        if not scopes:
            raise InputError(f"a token needs a scope: {', '.join(Scope)}")
        if len(await self._read_all()) >= TOKENS_MAX:
            raise InputError(f"there are {TOKENS_MAX:,} tokens already; revoke unused ones")
        now, secret = self._clock.now(), secrets.token_hex(_SECRET_BYTES)
        token = ApiToken(
            id=secrets.token_hex(_ID_BYTES),
            name=name,
            digest=_hash_secret(secret),
            scopes=tuple(scopes),
            created_at=now,
            expires_at=None if days is None else now + timedelta(days=days).total_seconds(),
            per_minute=per_minute,
        )
        await self._records.put(RECORD_KIND, token.id, msgspec.json.encode(token), revision=0)
        self._read_at = None
        text = f"{TOKEN_PREFIX}_{token.id}_{secret}"
        return NewTokenView(id=token.id, name=token.name, scopes=token.scopes, token=text)

    async def list(self) -> Sequence[TokenView]:
        return [_build_token_view(token) for token in await self._read_all()]

    async def revoke(self, token_id: str) -> None:
        """Revokes a token; raises NotFoundError."""
        if not token_id or not await self._records.delete(RECORD_KIND, token_id):
            raise NotFoundError(
                "token",
                escape_unprintable(token_id),
                hint="'runnel token list' shows those that exist",
            )
        self._read_at = None

    async def has_any(self) -> bool:
        return bool(await self._load_cached())

    async def identify(self, text: str) -> ApiToken:
        """Returns the token with this text; raises NotAuthenticatedError.

        The comparison takes constant time, so that its duration does not reveal the secret.
        """
        prefix, _, id_and_secret = text.partition("_")
        token_id, _, secret = id_and_secret.partition("_")
        token = (await self._load_cached()).get(token_id) if prefix == TOKEN_PREFIX else None
        expected = "" if token is None else token.digest
        if not hmac.compare_digest(_hash_secret(secret), expected) or token is None:
            raise NotAuthenticatedError("the token is unknown or was revoked; ask for another one")
        if token.is_expired(self._clock.now()):
            raise NotAuthenticatedError(f"the token '{token.name}' has expired; ask for a new one")
        return token

    async def is_valid(self, token_id: str) -> bool:
        """Returns False for a revoked or expired token, and while the store can't be reached.

        During a store outage, the cached tokens are accepted for CACHE_AGE_S_MAX.
        """
        try:
            token = (await self._load_cached()).get(token_id)
        except StoreError:
            return False
        return token is not None and not token.is_expired(self._clock.now())

    async def _load_cached(self) -> Mapping[str, ApiToken]:
        """Returns the tokens by id.

        One request refreshes the cache, while others use the old cache.

        A store that can't be reached may take 20 s to fail.
        """
        now = self._clock.monotonic()
        is_known = self._read_at is not None and now - self._read_at <= CACHE_AGE_S_MAX
        if is_known and now - self._refresh_tried_at < REFRESH_INTERVAL_S:
            return self._cached
        self._refresh_tried_at = now
        try:
            self._cached = {token.id: token for token in await self._read_all()}
        except StoreError:
            if not is_known:
                raise
            return self._cached
        self._read_at = now
        return self._cached

    async def _read_all(self) -> Sequence[ApiToken]:
        records = await self._records.list(RECORD_KIND, limit=TOKENS_MAX)
        return [msgspec.json.decode(record.data, type=ApiToken) for record in records]


def _hash_secret(secret: str) -> str:
    """Hashes a secret without salt, because a secret of 256 random bits can't be guessed."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _build_token_view(token: ApiToken) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        scopes=token.scopes,
        created_at=Timestamp(token.created_at),
        expires_at=make_timestamp(token.expires_at),
        per_minute=token.per_minute,
    )
