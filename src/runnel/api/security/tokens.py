"""Bearer tokens of the API. The text of a token is shown once; the store has only its hash."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from runnel.authoring.payloads import check_text
from runnel.core.wording import escape_unprintable
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
    """Raises MissingScopeError; a scope includes all weaker ones."""
    rank = _SCOPES_ASCENDING.index
    if not any(rank(scope) >= rank(needed) for scope in held):
        raise MissingScopeError(needed, held)


RECORD_KIND = "token"
TOKEN_PREFIX = "rnl"
NAME_CHARS_MAX = 100
TOKENS_MAX = 1_000
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


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token before it is stored. `secret` is 32 random bytes as hex, `id` 4 bytes."""

    id: str
    secret: str
    name: str
    scopes: tuple[Scope, ...]
    expires_at: float | None = None
    per_minute: int | None = None


class TokenStore:
    """The tokens of a store, cached for up to REFRESH_INTERVAL_S."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._cached: Mapping[str, ApiToken] = {}
        self._read_at: float | None = None
        self._refresh_tried_at = 0.0

    async def create(self, draft: NewToken) -> str:
        """Stores a token and returns its text, which is not stored; raises InputError."""
        check_text(draft.name, "the name of a token", chars_max=NAME_CHARS_MAX)
        if not draft.scopes:
            raise InputError(f"a token needs a scope: {', '.join(Scope)}")
        if len(await self.all()) >= TOKENS_MAX:
            raise InputError(f"there are {TOKENS_MAX:,} tokens already; revoke unused ones")
        token = ApiToken(
            id=draft.id,
            name=draft.name,
            digest=_hash_secret(draft.secret),
            scopes=draft.scopes,
            created_at=self._clock.now(),
            expires_at=draft.expires_at,
            per_minute=draft.per_minute,
        )
        await self._records.put(RECORD_KIND, token.id, msgspec.json.encode(token), revision=0)
        self._read_at = None
        return f"{TOKEN_PREFIX}_{token.id}_{draft.secret}"

    async def all(self) -> Sequence[ApiToken]:
        records = await self._records.list(RECORD_KIND, limit=TOKENS_MAX)
        return [msgspec.json.decode(record.data, type=ApiToken) for record in records]

    async def revoke(self, token_id: str) -> None:
        """Raises NotFoundError."""
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

        For a store outage, the cached tokens count for CACHE_AGE_S_MAX.
        """
        try:
            token = (await self._load_cached()).get(token_id)
        except StoreError:
            return False
        return token is not None and not token.is_expired(self._clock.now())

    async def _load_cached(self) -> Mapping[str, ApiToken]:
        """One request reads the store again; others use the cache meanwhile.

        A store that can't be reached may take 20 s to fail.
        """
        now = self._clock.monotonic()
        is_known = self._read_at is not None and now - self._read_at <= CACHE_AGE_S_MAX
        if is_known and now - self._refresh_tried_at < REFRESH_INTERVAL_S:
            return self._cached
        self._refresh_tried_at = now
        try:
            self._cached = {token.id: token for token in await self.all()}
        except StoreError:
            if not is_known:
                raise
            return self._cached
        self._read_at = now
        return self._cached


def _hash_secret(secret: str) -> str:
    """Needs neither salt nor a slow hash: a secret of 256 random bits can't be guessed."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


_ID_BYTES, _SECRET_BYTES = 4, 32


def generate_token(
    name: str,
    scopes: tuple[Scope, ...],
    *,
    expires_at: float | None = None,
    per_minute: int | None = None,
) -> NewToken:
    return NewToken(
        id=secrets.token_hex(_ID_BYTES),
        secret=secrets.token_hex(_SECRET_BYTES),
        name=name,
        scopes=scopes,
        expires_at=expires_at,
        per_minute=per_minute,
    )


class StoreTokens:
    """Implements the `Tokens` protocol over a store."""

    def __init__(self, tokens: TokenStore, clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock

    async def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        days: int | None = None,
        per_minute: int | None = None,
    ) -> NewTokenView:
        expires_at = None
        if days is not None:
            expires_at = self._clock.now() + timedelta(days=days).total_seconds()
        new = generate_token(name, tuple(scopes), expires_at=expires_at, per_minute=per_minute)
        text = await self._tokens.create(new)
        return NewTokenView(id=new.id, name=new.name, scopes=new.scopes, token=text)

    async def list(self) -> Sequence[TokenView]:
        return [build_token_view(token) for token in await self._tokens.all()]

    async def revoke(self, token_id: str) -> None:
        await self._tokens.revoke(token_id)


def build_token_view(token: ApiToken) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        scopes=token.scopes,
        created_at=Timestamp(token.created_at),
        expires_at=make_timestamp(token.expires_at),
        per_minute=token.per_minute,
    )
