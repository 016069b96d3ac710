"""Bearer tokens: made once, shown once, kept as a hash."""

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
from runnel.ports.records import Record, Records
from runnel.views import Timestamp, make_timestamp
from runnel.views.token import NewTokenView, Scope, TokenView

_SCOPES_ASCENDING = list(Scope)


def check_scope(needed: Scope, held: tuple[Scope, ...]) -> None:
    """Raises MissingScopeError; somebody who may operate may also run and read."""
    if not any(_SCOPES_ASCENDING.index(each) >= _SCOPES_ASCENDING.index(needed) for each in held):
        raise MissingScopeError(needed, held)


RECORD_KIND = "token"
TOKEN_PREFIX = "rnl"
NAME_CHARS_MAX = 100
TOKENS_MAX = 1_000
# So long a revoked token may still be good in another process.
REFRESH_INTERVAL_S = 3.0
# A store that is away can't have been told of a revocation either; but somebody else may have been.
CACHE_AGE_S_MAX = 300.0


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """`per_minute` None leaves the number of requests to the settings, 0 sets no limit."""

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
    """What is asked for; `secret` is 32 random bytes as text, `id` a few."""

    id: str
    secret: str
    name: str
    scopes: tuple[Scope, ...]
    expires_at: float | None = None
    per_minute: int | None = None


class TokenStore:
    """Those of one store, as they were a few seconds ago at most."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._cached: Mapping[str, ApiToken] = {}
        self._read_at: float | None = None
        self._refresh_tried_at = 0.0

    async def create(self, draft: NewToken) -> str:
        """The text of the token, which is stored nowhere; raises InputError."""
        check_text(draft.name, "the name of a token", chars_max=NAME_CHARS_MAX)
        if not draft.scopes:
            raise InputError(f"a token needs a scope: {', '.join(Scope)}")
        if len(await self.all()) >= TOKENS_MAX:
            raise InputError(f"there are {TOKENS_MAX:,} tokens; revoke those that nobody uses")
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
        return [
            _decode_token(each) for each in await self._records.list(RECORD_KIND, limit=TOKENS_MAX)
        ]

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
        """Raises NotAuthenticatedError; the time it takes tells nothing of the secret."""
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        found = (await self._load_cached()).get(token_id) if prefix == TOKEN_PREFIX else None
        expected = "" if found is None else found.digest
        if not hmac.compare_digest(_hash_secret(secret), expected) or found is None:
            raise NotAuthenticatedError("the token is unknown or was revoked; ask for another one")
        if found.is_expired(self._clock.now()):
            raise NotAuthenticatedError(f"the token '{found.name}' is too old; ask for a new one")
        return found

    async def is_valid(self, token_id: str) -> bool:
        """Not once it is revoked or too old, nor when nobody has known for minutes."""
        try:
            found = (await self._load_cached()).get(token_id)
        except StoreError:
            return False
        return found is not None and not found.is_expired(self._clock.now())

    async def _load_cached(self) -> Mapping[str, ApiToken]:
        """One request looks again, the others go on: a store that is away may take 20 s to say."""
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


def _decode_token(record: Record) -> ApiToken:
    return msgspec.json.decode(record.data, type=ApiToken)


def _hash_secret(secret: str) -> str:
    """Of 256 random bits: no salt and no slow hash would make them harder to guess."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


# What is secret of a token: chance that nobody can foresee.

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
    """`Tokens` of a store."""

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
