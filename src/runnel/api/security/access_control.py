"""Decides whether a request is admitted, and determines its caller."""

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

# Checks of Host and Origin, so that no foreign web page can use a local server.
#
# A web page can send requests to this machine, and can let its own domain name point to this
# machine (DNS rebinding). A web page can't change the Host and Origin headers that the browser
# writes.

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
WILDCARD = "*"


def check_host(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Raises ForeignRequestError unless the Host is allowed; the port does not matter."""
    host = headers.get("host", "")
    names = {name.lower() for name in allowed}
    if WILDCARD not in names and _parse_host_name(host) not in names:
        raise ForeignRequestError("Host", host, "RUNNEL_API_HOSTS lists the names of this server")


def check_origin(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Raises ForeignRequestError for a page of another origin that is not allowed."""
    origin = headers.get("origin")
    host = headers.get("host", "")
    if origin is None:
        if headers.get("sec-fetch-site") == "cross-site":
            raise ForeignRequestError("Sec-Fetch-Site", "cross-site", _ORIGIN_HINT)
        return
    if origin in allowed or WILDCARD in allowed:
        return
    if origin not in {f"http://{host}", f"https://{host}"}:
        raise ForeignRequestError("Origin", origin, _ORIGIN_HINT)


_ORIGIN_HINT = "RUNNEL_API_ORIGINS lists the pages that may use this server"


_HOST_PATTERN = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<name>[^:]*))(?::[0-9]*)?", re.ASCII)


def _parse_host_name(host: str) -> str:
    """Returns the name in lower case, without port and brackets; "" for an invalid Host."""
    match = _HOST_PATTERN.fullmatch(host.lower())
    return "" if match is None else match["address"] or match["name"] or ""


RATE_WINDOW_S = 60.0
HEALTH_PREFIX = "/health/"
RATE_LIMIT_EXEMPT_PREFIXES = (HEALTH_PREFIX, "/metrics")
# Requests are counted per IPv6 network: a client owns a whole network of addresses, and could use
# another one for each request.
IPV6_NETWORK_BITS = 64

_BEARER_PREFIX = "bearer "


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request. `scopes` is None for a caller without a token."""

    name: str
    scopes: tuple[Scope, ...] | None
    token_id: str | None = None


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a AccessControl.

    `is_open` means that no token existed when the server started. Such a server listens on loopback
    only. `per_minute` is the rate limit of callers without a token.
    """

    is_open: bool
    hosts: Collection[str] = ()
    origins: Collection[str] = ()
    per_minute: int = 60
    token_per_minute: int = 6_000


class AccessControl:
    """Checks host, origin, token and rate limit of each request."""

    def __init__(self, tokens: TokenStore, windows: RequestWindows, rules: AccessRules) -> None:
        self._tokens = tokens
        self._windows = windows
        self._rules = rules
        self._is_open = rules.is_open

    async def admit(
        self, path: str, headers: Mapping[str, str], address: str, *, is_delivery: bool = False
    ) -> Caller:
        """Returns the caller of a request, or refuses the request.

        Raises ForeignRequestError, NotAuthenticatedError, TooManyRequestsError.

        A webhook call (`is_delivery`) is admitted without a token: the webhook authenticates it.
        """
        if path.startswith(HEALTH_PREFIX):  # without the store, which may be down
            self._check_source(headers, is_open=self._is_open)
            return Caller(name="anonymous", scopes=None)
        is_open = await self._is_still_open()
        self._check_source(headers, is_open=is_open)
        if is_open:
            return Caller(name="local", scopes=(Scope.ADMIN,))
        authorization = None if is_delivery else headers.get("authorization")
        is_exempt = path.startswith(RATE_LIMIT_EXEMPT_PREFIXES)
        address_key = _make_address_key(address)
        if authorization is None:
            await self._count_request(address_key, self._rules.per_minute, is_exempt=is_exempt)
            return Caller(name="anonymous", scopes=None)
        try:
            token = await self._identify(authorization)
        except NotAuthenticatedError:
            await self._count_request(address_key, self._rules.per_minute, is_exempt=is_exempt)
            raise
        limit = self._rules.token_per_minute if token.per_minute is None else token.per_minute
        await self._count_request(f"token:{token.id}", limit, is_exempt=is_exempt)
        return Caller(name=token.name, scopes=token.scopes, token_id=token.id)

    async def _is_still_open(self) -> bool:
        """Returns True until the first token exists.

        After that, it returns False until the server restarts, even if all tokens are revoked.
        """
        if self._is_open and await self._tokens.has_any():
            self._is_open = False
        return self._is_open

    def _check_source(self, headers: Mapping[str, str], *, is_open: bool) -> None:
        """Checks Host if names are known, and Origin only while no token is needed.

        A foreign page has no token to send.
        """
        hosts = {*LOOPBACK_HOSTS, *self._rules.hosts} if is_open else self._rules.hosts
        if hosts:
            check_host(headers, hosts)
        if is_open:
            check_origin(headers, self._rules.origins)

    async def _identify(self, authorization: str) -> ApiToken:
        if not authorization.lower().startswith(_BEARER_PREFIX):
            raise NotAuthenticatedError("Authorization: expected 'Bearer' and a token")
        return await self._tokens.identify(authorization[len(_BEARER_PREFIX) :].strip())

    async def _count_request(self, key: str, limit: int, *, is_exempt: bool) -> None:
        if is_exempt or not limit:
            return
        wait_s = await self._windows.admit(key, limit=limit, window_s=RATE_WINDOW_S)
        if wait_s > 0:
            raise TooManyRequestsError(limit, wait_s)


def _make_address_key(text: str) -> str:
    """Returns the key that requests of an address are counted under."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return f"address:{text}"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return f"address:{address.ipv4_mapped}"
        return f"address:{ip_network((address, IPV6_NETWORK_BITS), strict=False)}"
    return f"address:{address}"


# The scope that a route requires of its caller.

# For OpenAPI only: the middleware has checked the token already.
_bearer_scheme = HTTPBearer(
    auto_error=False, scheme_name="token", description="A token from `runnel token create`"
)


def require_scope(scope: Scope) -> Any:  # what Depends returns has no type of its own
    """Returns a dependency that raises NotAuthenticatedError or MissingScopeError."""

    async def check(request: Request, _token: object = Depends(_bearer_scheme)) -> None:
        check_caller_scope(request, scope)

    return Depends(check)


def get_token_id(request: Request) -> str | None:
    """Returns the id of the request's token; None without a token."""
    caller: Caller = request.state.caller
    return caller.token_id


def check_caller_scope(request: Request, scope: Scope) -> None:
    """Raises as `require_scope` does, for a scope that only some calls of a route need."""
    caller: Caller = request.state.caller
    if caller.scopes is None:
        raise NotAuthenticatedError(
            "this needs a token: send 'Authorization: Bearer …'; 'runnel token create' makes one"
        )
    check_scope(scope, caller.scopes)
