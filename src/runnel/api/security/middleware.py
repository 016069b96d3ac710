"""Middleware that admits requests, limits bodies, and adds security headers to responses."""

from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runnel.api.problems import make_problem_response
from runnel.api.security.access_control import AccessControl
from runnel.errors import BodyTooLargeError, MalformedBodyError, RunnelError, UnsupportedMediaError

SECURITY_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
JSON_MEDIA_TYPE = "application/json"
# Paths that accept YAML as well as JSON. The body of a webhook call may be of any type.
YAML_PATHS = ("/workflow", "/workflows", "/workflows/validate")
_WEBHOOK_SUFFIX = "/triggers/webhook"
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class SecurityMiddleware:
    """Refuses a request before any route runs, or passes the request on with its caller."""

    def __init__(self, app: ASGIApp, *, access_control: AccessControl, body_bytes_max: int) -> None:
        self._app = app
        self._access_control = access_control
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        sending = _add_security_headers(send)
        try:
            client = scope.get("client") or ("unknown", 0)
            path: str = scope["path"]
            is_delivery = scope["method"] == "POST" and path.endswith(_WEBHOOK_SUFFIX)
            caller = await self._access_control.admit(
                path, headers, client[0], is_delivery=is_delivery
            )
            self._check_body(scope, headers, is_delivery=is_delivery)
        except RunnelError as error:
            response = make_problem_response(error)
            if _has_ambiguous_length(headers):
                response.headers["Connection"] = "close"
            await response(scope, receive, sending)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, self._limit_body(receive), sending)

    def _check_body(self, scope: Scope, headers: Headers, *, is_delivery: bool) -> None:
        if _has_ambiguous_length(headers):
            raise MalformedBodyError(
                "the body: expected Content-Length or Transfer-Encoding, got both"
            )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._body_bytes_max:
            raise BodyTooLargeError(self._body_bytes_max)
        has_body = length not in {"", "0"} or "transfer-encoding" in headers
        if scope["method"] not in _METHODS_WITH_BODY or not has_body or is_delivery:
            return
        path: str = scope["path"]
        expected = (
            [JSON_MEDIA_TYPE, "application/yaml"]
            if path.endswith(YAML_PATHS)
            else [JSON_MEDIA_TYPE]
        )
        media_type = parse_media_type(headers)
        if media_type not in expected:
            raise UnsupportedMediaError(media_type, expected)

    def _limit_body(self, receive: Receive) -> Receive:
        """Returns a `receive` that limits a body without Content-Length while the body arrives."""
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._body_bytes_max:
                raise BodyTooLargeError(self._body_bytes_max)
            return message

        return bounded


def parse_media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _has_ambiguous_length(headers: Headers) -> bool:
    """Returns True if the headers allow request smuggling.

    A proxy may find the end of such a request at another byte than this server. The remaining bytes
    would be parsed as a second request.
    """
    return "content-length" in headers and "transfer-encoding" in headers


def _add_security_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
