"""Decides whether a request may come in, and as whom, before anything else looks at it."""

from collections.abc import Collection, Mapping
from ipaddress import IPv6Address, ip_address, ip_network

import msgspec

from runnel.api.security.origins import LOOPBACK, check_host, check_origin
from runnel.api.security.scopes import Scope
from runnel.api.security.tokens import Token, Tokens
from runnel.errors import NotAuthenticatedError, TooManyRequestsError
from runnel.ports.windows import RequestWindows

WINDOW_S = 60.0
HEALTH = "/health/"
EXEMPT = (HEALTH, "/metrics")
# Whoever is given IPv6 addresses is given so many that each request could have one of its own.
NETWORK_BITS = 64

_BEARER = "bearer "


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """`scopes` are None for somebody without a token, where one would be needed."""

    name: str
    scopes: tuple[Scope, ...] | None
    token_id: str | None = None


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """`is_open`: nobody has made a token when the server began, which is on loopback only then.

    `per_minute` is for callers without a token.
    """

    is_open: bool
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    per_minute: int = 60
    token_per_minute: int = 6_000


class Guard:
    def __init__(self, tokens: Tokens, windows: RequestWindows, rules: Rules) -> None:
        self._tokens = tokens
        self._windows = windows
        self._rules = rules
        self._is_open = rules.is_open

    async def admit(
        self, path: str, headers: Mapping[str, str], address: str, *, is_delivery: bool = False
    ) -> Caller:
        """Raises ForeignRequestError, NotAuthenticatedError, TooManyRequestsError.

        What a delivery to a webhook says of its caller is for that webhook to judge.
        """
        if path.startswith(HEALTH):  # answered also when no store is
            self._check_source(headers, is_open=self._is_open)
            return Caller(name="anonymous", scopes=None)
        is_open = await self._still_open()
        self._check_source(headers, is_open=is_open)
        given = None if is_delivery else headers.get("authorization")
        is_exempt = path.startswith(EXEMPT)
        if is_open:
            return Caller(name="local", scopes=(Scope.ADMIN,))
        if given is None:
            await self._count(_of_address(address), self._rules.per_minute, is_exempt=is_exempt)
            return Caller(name="anonymous", scopes=None)
        try:
            token = await self._identify(given)
        except NotAuthenticatedError:
            await self._count(_of_address(address), self._rules.per_minute, is_exempt=is_exempt)
            raise
        await self._count(f"token:{token.id}", self._most(token), is_exempt=is_exempt)
        return Caller(name=token.name, scopes=token.scopes, token_id=token.id)

    async def _still_open(self) -> bool:
        """The first token closes it for good: the last one that is revoked does not open it."""
        if self._is_open and await self._tokens.exist():
            self._is_open = False
        return self._is_open

    def _check_source(self, headers: Mapping[str, str], *, is_open: bool) -> None:
        """With tokens, a foreign page has none to send along, and any name may lead here."""
        known = {*LOOPBACK, *self._rules.hosts} if is_open else self._rules.hosts
        if known:
            check_host(headers, known)
        if is_open:
            check_origin(headers, self._rules.origins)

    async def _identify(self, given: str) -> Token:
        if not given.lower().startswith(_BEARER):
            raise NotAuthenticatedError("Authorization: expected 'Bearer' and a token")
        return await self._tokens.identify(given[len(_BEARER) :].strip())

    def _most(self, token: Token) -> int:
        return self._rules.token_per_minute if token.per_minute is None else token.per_minute

    async def _count(self, who: str, most: int, *, is_exempt: bool) -> None:
        if is_exempt or not most:
            return
        wait_s = await self._windows.admit(who, limit=most, window_s=WINDOW_S)
        if wait_s > 0:
            raise TooManyRequestsError(most, wait_s)


def _of_address(text: str) -> str:
    """Whom the requests of an address are counted for."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return f"address:{text}"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return f"address:{address.ipv4_mapped}"
        return f"address:{ip_network((address, NETWORK_BITS), strict=False)}"
    return f"address:{address}"
