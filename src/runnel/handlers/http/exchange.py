"""Sends one HTTP request and follows redirects; each target is checked like the first URL."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

import httpcore
import httpx
import msgspec

from runnel.core.message_text import ELLIPSIS, shorten
from runnel.core.validation.handler_settings import is_url
from runnel.errors import InputError, RunnelError, ServiceError, ServiceRefusedError
from runnel.handlers.environment import HandlerClock
from runnel.handlers.http.connections import OutboundConnections
from runnel.handlers.http.request import (
    ERROR_BODY_CHARS_MAX,
    USER_AGENT,
    HttpLimits,
    HttpRequest,
    build_status_error,
    format_url,
    parse_retry_after,
)
from runnel.handlers.http.response_body import BodyDecompressor


async def close_if_trailing_data(response: httpcore.Response) -> None:
    """Closes the connection if bytes follow the response; call it before closing the response.

    httpcore keeps such bytes. On a reused connection, httpcore would read them as the response to
    the next request, which may come from another workflow.
    """
    if _has_trailing_data(response):
        await response.extensions["network_stream"].aclose()


def _has_trailing_data(response: httpcore.Response) -> bool:
    """Returns True if bytes follow the response.

    Also returns True if httpcore has no parser where this function expects it. Closing the
    connection is slower than reusing it, but safe.
    """
    connection = getattr(getattr(response.stream, "_stream", None), "_connection", None)
    parser = getattr(connection, "_h11_state", None)
    return parser is None or bool(parser.trailing_data[0])


REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
# Redirects with these statuses keep method and body. Other redirects are followed with GET.
METHOD_PRESERVING_STATUSES = frozenset({307, 308})
BODILESS_STATUSES = frozenset({204, 304})
# Headers that are sent to another host after a redirect. Other headers may contain credentials.
CROSS_HOST_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
ERROR_BODY_BYTES_MAX = 4 * ERROR_BODY_CHARS_MAX
SHOWN_TARGET_CHARS_MAX = 60
DEFAULT_PORTS = {"http": 80, "https": 443}


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    """A response without its body. `headers` have lower-case names; repeated ones are joined."""

    status: int
    headers: dict[str, str]
    where: str
    has_body: bool


class StreamedResponse:
    """A response whose body has not been read yet. The body can be read once."""

    def __init__(self, head: ResponseHead, compressed: AsyncIterator[bytes]) -> None:
        self.head = head
        self._compressed = compressed

    async def iterate_chunks(self, bytes_max: int) -> AsyncGenerator[bytes, None]:
        """Yields the decompressed body; raises ServiceRefusedError after `bytes_max` bytes."""
        head = self.head
        # A response without a body may still have headers for the length and encoding of a body.
        decompressor = BodyDecompressor(
            head.where, head.headers if head.has_body else {}, bytes_max=bytes_max
        )
        async for chunk in self._compressed:
            yield decompressor.decompress(chunk)
        decompressor.check_complete()

    async def read(self, bytes_max: int) -> bytes:
        return b"".join([chunk async for chunk in self.iterate_chunks(bytes_max)])


@asynccontextmanager
async def send_request(
    connections: OutboundConnections, request: HttpRequest, clock: HandlerClock
) -> AsyncIterator[StreamedResponse]:
    """Sends a request and yields the response; closes the response at the end of the block.

    Raises ServiceError, ServiceBusyError or ServiceRefusedError for a status that is not ok. The
    same errors report problems of the connection, also while the block reads the body.
    """
    where = format_url(request.url)
    try:
        async with (
            connections.acquire_pool() as pool,
            clock.timeout(request.limits.total_s),
            _follow_redirects(pool, request) as opened,
        ):
            if not request.status_policy.is_ok(opened.head.status):
                raise await _read_status_error(opened, request, clock)
            yield opened
    except TimeoutError as error:
        raise ServiceError(f"{where} did not answer within {request.limits.total_s:g} s") from error
    except httpcore.TimeoutException as error:
        raise ServiceError(f"the connection to {where} timed out") from error
    except httpcore.LocalProtocolError as error:
        raise InputError(f"the request to {where} can't be sent: {error}") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
        raise _build_connection_error(where, error) from error


@asynccontextmanager
async def _follow_redirects(
    pool: httpcore.AsyncConnectionPool, request: HttpRequest
) -> AsyncIterator[StreamedResponse]:
    """Yields the first response that is not a redirect; raises after too many redirects."""
    url = _build_url(request)
    for redirects_left in range(request.limits.redirects, -1, -1):
        response = await pool.handle_async_request(_build_httpcore_request(request, url))
        try:
            head = ResponseHead(
                status=response.status,
                headers=_join_headers(response),
                where=format_url(str(url)),
                has_body=request.method != "HEAD" and response.status not in BODILESS_STATUSES,
            )
            target = head.headers.get("location") if head.status in REDIRECT_STATUSES else None
            if target is None or not request.limits.redirects:
                yield StreamedResponse(head, response.aiter_stream())
                return
        finally:
            try:
                await close_if_trailing_data(response)
            finally:
                await response.aclose()
        if not redirects_left:
            raise ServiceRefusedError(
                f"{format_url(request.url)} redirected more than {request.limits.redirects} times, "
                f"last to {head.where}"
            )
        target_url = _resolve_redirect(url, target, head.where)
        request = _redirect_request(request, url, target_url, status=head.status)
        url = target_url


def _build_url(request: HttpRequest) -> httpx.URL:
    try:
        url = _parse_url(request.url)
        return url.copy_merge_params(_format_params(request)) if request.params else url
    except httpx.InvalidURL as error:
        raise InputError(f"{format_url(request.url)} is not a URL: {error}") from error


def _parse_url(text: str) -> httpx.URL:
    """Parses a URL; raises InvalidURL, also where httpx raises a plain ValueError."""
    try:
        url = httpx.URL(text)
        return url if url.host else httpx.URL()
    except ValueError as error:
        raise httpx.InvalidURL(str(error)) from error


def _format_params(request: HttpRequest) -> dict[str, list[str]]:
    return {
        name: [_format_param(item) for item in (value if isinstance(value, list) else [value])]
        for name, value in request.params.items()
    }


def _format_param(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _build_httpcore_request(outgoing: HttpRequest, url: httpx.URL) -> httpcore.Request:
    headers = {"accept": "*/*", "user-agent": USER_AGENT, **outgoing.headers}
    request = httpx.Request(
        outgoing.method,
        url,
        # BodyDecompressor supports these encodings only.
        headers={**headers, "accept-encoding": "gzip, deflate"},
        content=outgoing.content,
    )
    limits: HttpLimits = outgoing.limits
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=outgoing.content,
        extensions={
            "timeout": {
                "connect": limits.connect_s,
                "read": limits.total_s,
                "write": limits.total_s,
            }
        },
    )


def _join_headers(response: httpcore.Response) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in response.headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        joined[key] = f"{joined[key]}, {text}" if key in joined else text
    return joined


def _resolve_redirect(url: httpx.URL, target: str, where: str) -> httpx.URL:
    """Returns the target of a redirect; raises ServiceRefusedError if it is not an HTTP URL."""
    try:
        resolved = _parse_url(str(url.join(target)))
    except (httpx.InvalidURL, ValueError):
        resolved = httpx.URL()
    if not is_url(str(resolved)):
        raise ServiceRefusedError(
            f"{where} redirects to '{shorten(target, SHOWN_TARGET_CHARS_MAX)}'; expected an http "
            "or https URL without user and password"
        )
    return resolved


def _redirect_request(
    request: HttpRequest, url: httpx.URL, target: httpx.URL, *, status: int
) -> HttpRequest:
    keeps_body = status in METHOD_PRESERVING_STATUSES or request.method in {"GET", "HEAD"}
    is_elsewhere = not _is_same_origin(url, target)
    if is_elsewhere and keeps_body and request.content is not None:
        raise ServiceRefusedError(
            f"{format_url(str(url))} redirects a request with a body to another host; if you trust "
            f"that host, call {format_url(str(target))} directly"
        )
    headers: Mapping[str, str] = request.headers
    if is_elsewhere:
        headers = {name: value for name, value in headers.items() if name in CROSS_HOST_HEADERS}
    if keeps_body:
        return msgspec.structs.replace(request, headers=dict(headers))
    body_headers = {"content-type", "content-length"}
    return msgspec.structs.replace(
        request,
        method="GET",
        content=None,
        headers={name: value for name, value in headers.items() if name not in body_headers},
    )


def _is_same_origin(url: httpx.URL, target: httpx.URL) -> bool:
    """Returns True for equal scheme, host and port, and for an upgrade from http to https."""
    is_upgrade = (_get_port(url), _get_port(target)) == (80, 443) and target.scheme == "https"
    is_same = url.scheme == target.scheme and _get_port(url) == _get_port(target)
    return url.host == target.host and (is_same or is_upgrade)


def _get_port(url: httpx.URL) -> int:
    return url.port or DEFAULT_PORTS[url.scheme]


async def _read_status_error(
    response: StreamedResponse, request: HttpRequest, clock: HandlerClock
) -> RunnelError:
    """Builds the error for a status that is not ok; quotes the beginning of the body."""
    head = response.head
    beginning = b""
    with suppress(RunnelError, httpcore.NetworkError, httpcore.ProtocolError):
        async with aclosing(response.iterate_chunks(request.limits.bytes_max)) as chunks:
            async for chunk in chunks:
                beginning += chunk[: ERROR_BODY_BYTES_MAX + 1]
                if len(beginning) > ERROR_BODY_BYTES_MAX:
                    break
    text = beginning[:ERROR_BODY_BYTES_MAX].decode(errors="replace") + (
        ELLIPSIS if len(beginning) > ERROR_BODY_BYTES_MAX else ""
    )
    retry_after_s = parse_retry_after(head.headers.get("retry-after"), now=clock.now())
    return build_status_error(
        request.status_policy, head.where, head.status, body=text, retry_after_s=retry_after_s
    )


def _build_connection_error(where: str, error: BaseException) -> RunnelError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ServiceRefusedError(
                f"the certificate of {where} is not trusted: {cause.verify_message}"
            )
        cause = cause.__cause__ or cause.__context__
    reason = str(error) or type(error).__name__
    return ServiceError(f"the connection to {where} failed: {reason}")
