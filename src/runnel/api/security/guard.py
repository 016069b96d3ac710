"""Decides whether a request may come in, and as whom, before anything else looks at it."""

import re
from collections.abc import Collection, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

import msgspec
from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from runnel.api.security.tokens import ApiToken, TokenStore, check_scope
from runnel.errors import ForeignRequestError, NotAuthenticatedError, TooManyRequestsError
from runnel.ports.records import RequestWindows
from runnel.views.token import Scope

# Which hosts and pages a request may come from, so that no web page can use a local server.
#
# A page that somebody looks at can send requests to this machine, and can make its own name point
# here. What it can't do is to change the Host and Origin that the browser writes.

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARD = "*"


def check_host(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Raises ForeignRequestError unless the Host is one of those, whatever the port."""
    found = headers.get("host", "")
    if WILDCARD not in allowed and _parse_host_name(found) not in {
        each.lower() for each in allowed
    }:
        raise ForeignRequestError("Host", found, "RUNNEL_API_HOSTS lists the names of this server")


def check_origin(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Raises ForeignRequestError for a page that this server has not sent, and does not allow."""
    found = headers.get("origin")
    host = headers.get("host", "")
    if found is None:
        if headers.get("sec-fetch-site") == "cross-site":
            raise ForeignRequestError("Sec-Fetch-Site", "cross-site", _ORIGIN_HINT)
        return
    if found in allowed or WILDCARD in allowed:
        return
    if found not in {f"http://{host}", f"https://{host}"}:
        raise ForeignRequestError("Origin", found, _ORIGIN_HINT)


_ORIGIN_HINT = "RUNNEL_API_ORIGINS lists the pages that may use this server"


_HOST_PATTERN = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<name>[^:]*))(?::[0-9]*)?", re.ASCII)


def _parse_host_name(host: str) -> str:
    """In lower case, without the port, as of `[::1]:8080`; what is no host is no name of any."""
    found = _HOST_PATTERN.fullmatch(host.lower())
    return "" if found is None else found["address"] or found["name"] or ""


RATE_WINDOW_S = 60.0
HEALTH_PREFIX = "/health/"
RATE_LIMIT_EXEMPT_PREFIXES = (HEALTH_PREFIX, "/metrics")
# Whoever is given IPv6 addresses is given so many that each request could have one of its own.
IPV6_NETWORK_BITS = 64

_BEARER_PREFIX = "bearer "


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """`scopes` are None for somebody without a token, where one would be needed."""

    name: str
    scopes: tuple[Scope, ...] | None
    token_id: str | None = None


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """`is_open`: nobody has made a token when the server began, which is on loopback only then.

    `per_minute` is for callers without a token.
    """

    is_open: bool
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    per_minute: int = 60
    token_per_minute: int = 6_000


class Guard:
    def __init__(self, tokens: TokenStore, windows: RequestWindows, rules: AccessRules) -> None:
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
        if path.startswith(HEALTH_PREFIX):  # answered also when no store is
            self._check_source(headers, is_open=self._is_open)
            return Caller(name="anonymous", scopes=None)
        is_open = await self._is_still_open()
        self._check_source(headers, is_open=is_open)
        given = None if is_delivery else headers.get("authorization")
        is_exempt = path.startswith(RATE_LIMIT_EXEMPT_PREFIXES)
        if is_open:
            return Caller(name="local", scopes=(Scope.ADMIN,))
        if given is None:
            await self._count_request(
                _make_address_key(address), self._rules.per_minute, is_exempt=is_exempt
            )
            return Caller(name="anonymous", scopes=None)
        try:
            token = await self._identify(given)
        except NotAuthenticatedError:
            await self._count_request(
                _make_address_key(address), self._rules.per_minute, is_exempt=is_exempt
            )
            raise
        await self._count_request(
            f"token:{token.id}", self._get_rate_limit(token), is_exempt=is_exempt
        )
        return Caller(name=token.name, scopes=token.scopes, token_id=token.id)

    async def _is_still_open(self) -> bool:
        """The first token closes it for good: the last one that is revoked does not open it."""
        if self._is_open and await self._tokens.has_any():
            self._is_open = False
        return self._is_open

    def _check_source(self, headers: Mapping[str, str], *, is_open: bool) -> None:
        """With tokens, a foreign page has none to send along, and any name may lead here."""
        known = {*LOOPBACK_HOSTS, *self._rules.hosts} if is_open else self._rules.hosts
        if known:
            check_host(headers, known)
        if is_open:
            check_origin(headers, self._rules.origins)

    async def _identify(self, authorization: str) -> ApiToken:
        if not authorization.lower().startswith(_BEARER_PREFIX):
            raise NotAuthenticatedError("Authorization: expected 'Bearer' and a token")
        return await self._tokens.identify(authorization[len(_BEARER_PREFIX) :].strip())

    def _get_rate_limit(self, token: ApiToken) -> int:
        return self._rules.token_per_minute if token.per_minute is None else token.per_minute

    async def _count_request(self, key: str, limit: int, *, is_exempt: bool) -> None:
        if is_exempt or not limit:
            return
        wait_s = await self._windows.admit(key, limit=limit, window_s=RATE_WINDOW_S)
        if wait_s > 0:
            raise TooManyRequestsError(limit, wait_s)


def _make_address_key(text: str) -> str:
    """Whom the requests of an address are counted for."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return f"address:{text}"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return f"address:{address.ipv4_mapped}"
        return f"address:{ip_network((address, IPV6_NETWORK_BITS), strict=False)}"
    return f"address:{address}"


# What a route asks of whoever calls it.

# For OpenAPI only: the gate has looked at the token already.
_bearer_scheme = HTTPBearer(
    auto_error=False, scheme_name="token", description="From `runnel token`"
)


def require_scope(scope: Scope) -> Any:  # what Depends returns has no type of its own
    """Raises NotAuthenticatedError without a token, MissingScopeError with one that is too weak."""

    async def check(request: Request, _token: object = Depends(_bearer_scheme)) -> None:
        check_caller_scope(request, scope)

    return Depends(check)


def get_token_id(request: Request) -> str | None:
    """The id of the token that a request has come with."""
    caller: Caller = request.state.caller
    return caller.token_id


def check_caller_scope(request: Request, scope: Scope) -> None:
    """Raises as `require_scope` does: for what only some calls of a route need."""
    caller: Caller = request.state.caller
    if caller.scopes is None:
        raise NotAuthenticatedError(
            "this needs a token: send 'Authorization: Bearer …'; 'runnel token' makes one"
        )
    check_scope(scope, caller.scopes)
