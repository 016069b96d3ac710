"""One request and its answer, over as many redirects as are allowed, each checked as the first."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

import httpcore
import httpx
import msgspec

from runnel.core.validation.handler_settings import is_url
from runnel.errors import InputError, RunnelError, ServiceError, ServiceRefusedError
from runnel.handlers.http.connections import Connections
from runnel.handlers.http.request import (
    SAID_CHARS,
    USER_AGENT,
    Limits,
    Wanted,
    retry_after,
    shown_url,
    status_error,
)
from runnel.handlers.http.response_body import Unpacking
from runnel.handlers.permissions import CUT, Waits, short

# Bytes that came after an answer and belong to none: nobody can tell whose the next ones are.
#
# On a connection that is used again, they would be read as the answer to the next request, which
# may be another workflow's. httpcore keeps them for it.


async def hang_up_if_more(answer: httpcore.Response) -> None:
    """To be called when an answer has been read, before it is closed."""
    if _has_more(answer):
        await answer.extensions["network_stream"].aclose()


def _has_more(answer: httpcore.Response) -> bool:
    """True as well if a later httpcore keeps its parser elsewhere: slow, but safe."""
    connection = getattr(getattr(answer.stream, "_stream", None), "_connection", None)
    parser = getattr(connection, "_h11_state", None)
    return parser is None or bool(parser.trailing_data[0])


REDIRECTS = frozenset({301, 302, 303, 307, 308})
# With these, the request is made again as it was; with the others as a GET.
AS_IT_WAS = frozenset({307, 308})
WITHOUT_BODY = frozenset({204, 304})
# What another host may know; anything else that a user gave may be a credential.
HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
ERROR_BYTES = 4 * SAID_CHARS
TARGET_CHARS = 60
PORTS = {"http": 80, "https": 443}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without its body; `headers` by lower-case name, several of a name joined."""

    status: int
    headers: dict[str, str]
    where: str
    has_body: bool


class Opened:
    """An answer whose body is still on its way; it can be read once."""

    def __init__(self, head: Head, packed: AsyncIterator[bytes]) -> None:
        self.head = head
        self._packed = packed

    async def chunks(self, bytes_max: int) -> AsyncGenerator[bytes, None]:
        """Unpacked; raises ServiceRefusedError beyond the limit."""
        head = self.head
        # Without a body, its length and its packing are those that it would have.
        unpacking = Unpacking(
            head.where, head.headers if head.has_body else {}, bytes_max=bytes_max
        )
        async for chunk in self._packed:
            yield unpacking.unpack(chunk)
        unpacking.end()

    async def read(self, bytes_max: int) -> bytes:
        return b"".join([chunk async for chunk in self.chunks(bytes_max)])


@asynccontextmanager
async def exchange(connections: Connections, wanted: Wanted, clock: Waits) -> AsyncIterator[Opened]:
    """The answer, if its status is one that was hoped for; everything has ended with the block.

    Raises ServiceError, ServiceBusyError or ServiceRefusedError; also what goes wrong while the
    block reads the body is one of them.
    """
    where = shown_url(wanted.url)
    try:
        async with (
            connections.used() as pool,
            clock.timeout(wanted.limits.total_s),
            _answered(pool, wanted) as opened,
        ):
            if not wanted.verdicts.is_ok(opened.head.status):
                raise await _refusal(opened, wanted, clock)
            yield opened
    except TimeoutError as error:
        raise ServiceError(f"{where} did not answer within {wanted.limits.total_s:g} s") from error
    except httpcore.TimeoutException as error:
        raise ServiceError(f"{where} could not be connected to in time") from error
    except httpcore.LocalProtocolError as error:
        raise InputError(f"the request to {where} can't be sent: {error}") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
        raise _broken(where, error) from error


@asynccontextmanager
async def _answered(pool: httpcore.AsyncConnectionPool, wanted: Wanted) -> AsyncIterator[Opened]:
    """The first answer that is no redirect, or the last one that may be followed."""
    url = _first_url(wanted)
    for left in range(wanted.limits.redirects, -1, -1):
        answer = await pool.handle_async_request(_request(wanted, url))
        try:
            head = Head(
                status=answer.status,
                headers=_headers(answer),
                where=shown_url(str(url)),
                has_body=wanted.method != "HEAD" and answer.status not in WITHOUT_BODY,
            )
            target = head.headers.get("location") if head.status in REDIRECTS else None
            if target is None or not wanted.limits.redirects:
                yield Opened(head, answer.aiter_stream())
                return
        finally:
            try:
                await hang_up_if_more(answer)
            finally:
                await answer.aclose()
        if not left:
            raise ServiceRefusedError(
                f"{shown_url(wanted.url)} redirected more than {wanted.limits.redirects} times, "
                f"last to {head.where}"
            )
        target_url = _next_url(url, target, head.where)
        wanted = _redirected(wanted, url, target_url, status=head.status)
        url = target_url


def _first_url(wanted: Wanted) -> httpx.URL:
    try:
        url = _parsed(wanted.url)
        return url.copy_merge_params(_params(wanted)) if wanted.params else url
    except httpx.InvalidURL as error:
        raise InputError(f"{shown_url(wanted.url)} is not a URL: {error}") from error


def _parsed(text: str) -> httpx.URL:
    """Raises InvalidURL, also for what only the modules below httpx find wrong with it."""
    try:
        url = httpx.URL(text)
        return url if url.host else httpx.URL()
    except ValueError as error:
        raise httpx.InvalidURL(str(error)) from error


def _params(wanted: Wanted) -> dict[str, list[str]]:
    return {
        name: [_param(each) for each in (value if isinstance(value, list) else [value])]
        for name, value in wanted.params.items()
    }


def _param(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _request(wanted: Wanted, url: httpx.URL) -> httpcore.Request:
    headers = {"accept": "*/*", "user-agent": USER_AGENT, **wanted.headers}
    request = httpx.Request(
        wanted.method,
        url,
        # Other packing is not unpacked within bounds here.
        headers={**headers, "accept-encoding": "gzip, deflate"},
        content=wanted.content,
    )
    limits: Limits = wanted.limits
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=wanted.content,
        extensions={
            "timeout": {
                "connect": limits.connect_s,
                "read": limits.total_s,
                "write": limits.total_s,
            }
        },
    )


def _headers(answer: httpcore.Response) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in answer.headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def _next_url(url: httpx.URL, target: str, where: str) -> httpx.URL:
    """Raises ServiceRefusedError for everything but an ordinary address of the web."""
    try:
        found = _parsed(str(url.join(target)))
    except (httpx.InvalidURL, ValueError):
        found = httpx.URL()
    if not is_url(str(found)):
        raise ServiceRefusedError(
            f"{where} redirects to '{short(target, TARGET_CHARS)}'; only http and https are "
            "followed, without a user or password"
        )
    return found


def _redirected(wanted: Wanted, url: httpx.URL, target: httpx.URL, *, status: int) -> Wanted:
    keeps_body = status in AS_IT_WAS or wanted.method in {"GET", "HEAD"}
    is_elsewhere = not _is_same(url, target)
    if is_elsewhere and keeps_body and wanted.content is not None:
        raise ServiceRefusedError(
            f"{shown_url(str(url))} redirects a request with a body to another host, "
            f"{shown_url(str(target))}; call that one, if you trust it"
        )
    headers: Mapping[str, str] = wanted.headers
    if is_elsewhere:
        headers = {name: value for name, value in headers.items() if name in HARMLESS}
    if keeps_body:
        return msgspec.structs.replace(wanted, headers=dict(headers))
    without = {"content-type", "content-length"}
    return msgspec.structs.replace(
        wanted,
        method="GET",
        content=None,
        headers={name: value for name, value in headers.items() if name not in without},
    )


def _is_same(url: httpx.URL, target: httpx.URL) -> bool:
    """The same scheme, host and port; or only the step from http to https."""
    is_safer = (_port(url), _port(target)) == (80, 443) and target.scheme == "https"
    is_alike = url.scheme == target.scheme and _port(url) == _port(target)
    return url.host == target.host and (is_alike or is_safer)


def _port(url: httpx.URL) -> int:
    return url.port or PORTS[url.scheme]


async def _refusal(opened: Opened, wanted: Wanted, clock: Waits) -> RunnelError:
    """With the beginning of the body, as far as it can be had: the status alone says enough."""
    head = opened.head
    said = b""
    with suppress(RunnelError, httpcore.NetworkError, httpcore.ProtocolError):
        async with aclosing(opened.chunks(wanted.limits.bytes_max)) as chunks:
            async for chunk in chunks:
                said += chunk[: ERROR_BYTES + 1]
                if len(said) > ERROR_BYTES:
                    break
    text = said[:ERROR_BYTES].decode(errors="replace") + (CUT if len(said) > ERROR_BYTES else "")
    after = retry_after(head.headers.get("retry-after"), now=clock.now())
    return status_error(wanted.verdicts, head.where, head.status, said=text, retry_after_s=after)


def _broken(where: str, error: BaseException) -> RunnelError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ServiceRefusedError(
                f"{where} has no certificate to trust: {cause.verify_message}"
            )
        cause = cause.__cause__ or cause.__context__
    why = str(error) or type(error).__name__
    return ServiceError(f"the connection to {where} failed: {why}")
