"""Metrics of HTTP requests, labeled by route template so that their number stays limited."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runnel.ports.clock import Clock
from runnel.telemetry.metrics import Histogram, LabeledCounter, MetricFamily

NO_ROUTE = "none"
_EVENT_STREAM_TYPE = b"text/event-stream"
_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    def __init__(self) -> None:
        self.requests = LabeledCounter(
            "runnel_http_requests", "Requests that were answered.", "method", "route", "status"
        )
        self.durations = Histogram(
            "runnel_http_request_duration_seconds",
            "From the first byte of a request to the last byte of its response, without streams.",
            "method",
            "route",
        )
        self.in_flight = LabeledCounter(
            "runnel_http_requests_under_way", "Requests in flight.", kind="gauge"
        )
        self.in_flight.set(value=0.0)

    def collect_families(self) -> list[MetricFamily]:
        metrics = (self.requests, self.durations, self.in_flight)
        return [metric.build_family() for metric in metrics]


class HttpMetricsMiddleware:
    """Middleware that counts and times requests.

    It is the outermost middleware, so that refused requests are counted too. A refused request has
    the route "none".
    """

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
        started_at, status, is_stream = self._clock.monotonic(), 500, False

        async def sending(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = dict(message.get("headers", ()))
                is_stream = headers.get(b"content-type", b"").startswith(_EVENT_STREAM_TYPE)
            await send(message)

        metrics = self._metrics
        metrics.in_flight.add()
        try:
            await self._app(scope, receive, sending)
        finally:
            metrics.in_flight.add(n=-1.0)
            method = scope["method"] if scope["method"] in _KNOWN_METHODS else "other"
            route = self._find_route_template(scope)
            metrics.requests.add(method, route, str(status))
            if not is_stream:
                metrics.durations.add(self._clock.monotonic() - started_at, (method, route))

    def _find_route_template(self, scope: Scope) -> str:
        """Returns the path template of the matched route, such as `/executions/{execution_id}`."""
        path = str(getattr(scope.get("route"), "path", NO_ROUTE))
        for prefix in self._prefixes:
            path = path.removeprefix(prefix)
        return path
