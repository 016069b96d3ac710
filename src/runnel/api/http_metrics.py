"""Counts requests by the template of their path, never by the path itself."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runnel.ports.clock import Clock
from runnel.telemetry.metrics import Family, Spread, Tally

NO_ROUTE = "none"
_STREAM = b"text/event-stream"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    def __init__(self) -> None:
        self.requests = Tally(
            "runnel_http_requests", "Requests that were answered.", "method", "route", "status"
        )
        self.took = Spread(
            "runnel_http_request_duration_seconds",
            "From the first byte of a request to the last of its answer; not of event streams.",
            "method",
            "route",
        )
        self.under_way = Tally(
            "runnel_http_requests_under_way", "Requests that are being answered.", kind="gauge"
        )
        self.under_way.set(value=0.0)

    def families(self) -> list[Family]:
        return [each.family() for each in (self.requests, self.took, self.under_way)]


class Counted:
    """The outermost layer: what the gate refuses is counted too, as a request without a route."""

    def __init__(
        self, app: ASGIApp, *, metrics: HttpMetrics, clock: Clock, prefixes: Sequence[str]
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock
        self._prefixes = prefixes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, is_stream = self._clock.monotonic(), 500, False

        async def sending(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = dict(message.get("headers", ()))
                is_stream = headers.get(b"content-type", b"").startswith(_STREAM)
            await send(message)

        metrics = self._metrics
        metrics.under_way.add()
        try:
            await self._app(scope, receive, sending)
        finally:
            metrics.under_way.add(n=-1.0)
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = self._route_of(scope)
            metrics.requests.add(method, route, str(status))
            if not is_stream:
                metrics.took.add(self._clock.monotonic() - began, (method, route))

    def _route_of(self, scope: Scope) -> str:
        """`/executions/{execution_id}`, as the router has found it, without the prefix."""
        path = str(getattr(scope.get("route"), "path", NO_ROUTE))
        for prefix in self._prefixes:
            path = path.removeprefix(prefix)
        return path
