"""Sends HTTP requests to a server, repeats failed requests if safe, and decodes views."""

import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeAlias, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import getproxies

import httpx
import msgspec

from runnel.authoring.payloads import check_text
from runnel.client.http_connections import HttpConnectionPool
from runnel.client.idempotency import KEY_CHARS_MAX
from runnel.core.message_text import quote_name
from runnel.core.values import Json
from runnel.errors import (
    InputError,
    NoServerError,
    NotAuthenticatedError,
    NotRunnelError,
    RunnelError,
    list_error_classes,
)
from runnel.ports.clock import Clock, IdGenerator
from runnel.settings import read_settings
from runnel.settings.variables import VARIABLES
from runnel.views import decode_view
from runnel.views.page import Page

T = TypeVar("T")

# Decodes an error from the problem details in a response.


class _Problem(msgspec.Struct, frozen=True):
    """The problem details of an error; `details` are the fields of the error object."""

    detail: str
    code: str
    details: dict[str, Json] = {}


_decode = msgspec.json.Decoder(_Problem).decode


ERROR_CLASSES: Mapping[str, type[RunnelError]] = {
    error.code: error for error in list_error_classes() if "code" in vars(error)
}


def decode_error(status: int, body: bytes) -> RunnelError | None:
    """Returns the error in the body of a response; None if Runnel did not write the body.

    An unknown error code becomes an InputError for a status below 500, and a RunnelError for other
    statuses.
    """
    try:
        problem = _decode(body)
    except msgspec.MsgspecError:
        return None
    is_bad_request = status < HTTPStatus.INTERNAL_SERVER_ERROR
    kind = ERROR_CLASSES.get(problem.code, InputError if is_bad_request else RunnelError)
    return _build_error(kind, problem)


def _build_error(error_class: type[RunnelError], problem: _Problem) -> RunnelError:
    """Returns an error, built without its constructor, which would format the message again."""
    error = error_class.__new__(error_class)
    error.args = (problem.detail,)
    for name, value in problem.details.items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


# Describes why a server could not be reached.


def find_failure_reason(error: httpx.RequestError) -> str:
    """Returns the reason of a failed request.

    Prefers the message of the operating system, which is the most precise one.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):  # its number is not an errno
            return _describe_tls_error(cause)
        if isinstance(cause, OSError) and cause.errno is not None:
            message = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
            return message[:1].lower() + message[1:]
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _describe_tls_error(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted ({error.verify_message})"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "the server does not use TLS, but the address begins with https://"
    return f"TLS failed ({error.reason or error})"


# Server-sent events.


class ServerSentEvent(msgspec.Struct, frozen=True):
    """A message of a stream. A client that reconnects with the `id` gets the messages after it."""

    id: str
    event: str
    data: str


async def iter_server_sent_events(response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    """Yields events until the server ends the stream.

    Skips comments, which the server sends to keep the connection open.
    """
    fields: dict[str, str] = {}
    async for line in _iter_lines(response):
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            yield ServerSentEvent(fields.get("id", ""), fields["event"], fields.get("data", "null"))
            fields = {}


async def _iter_lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yields the complete lines of a response.

    `aiter_lines` of httpx also splits at U+0085, U+2028 and U+2029, which a JSON text may contain.
    """
    pending: list[bytes] = []
    async for data in response.aiter_bytes():
        first, *later = data.split(b"\n")
        pending.append(first)
        for part in later:
            yield b"".join(pending).removesuffix(b"\r").decode(errors="replace")
            pending = [part]


# Idempotency keys in a header.

_BLANKS = " \t"
_LAST_CONTROL, _DELETE = "\x1f", "\x7f"


def check_idempotency_key(key: str) -> None:
    """Raises InputError for a key that a store refuses, or that an HTTP header can't hold."""
    check_text(key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    has_control = any(char <= _LAST_CONTROL or char == _DELETE for char in key)
    if has_control or key != key.strip(_BLANKS):
        raise InputError(
            "expected an idempotency key without control characters and without blanks at its "
            f"ends, because it is sent in an HTTP header; got {quote_name(key)}"
        )


# The address of a server, and its token.

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT_URL = "http://127.0.0.1:8080"
SERVER_VARIABLE, TOKEN_VARIABLE = "RUNNEL_SERVER", "RUNNEL_TOKEN"


class ServerAddress(msgspec.Struct, frozen=True):
    url: str
    token: str | None = None

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.url).hostname in LOOPBACK_HOSTS

    @property
    def is_encrypted(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def display_url(self) -> str:
        return VARIABLES[SERVER_VARIABLE].hide(self.url)


def resolve_server_address(url: str | None = None, token: str | None = None) -> ServerAddress:
    """Returns the server's address; reads a missing URL or token from the environment.

    Raises InputError.
    """
    given = {SERVER_VARIABLE: url, TOKEN_VARIABLE: token}
    for name, text in given.items():
        if text is not None:
            variable = VARIABLES[name]
            try:
                variable.parse(text)
            except ValueError as error:
                parameter = "url" if name == SERVER_VARIABLE else "token"
                raise InputError(
                    f"{parameter}: expected {error}, got '{variable.hide(text)}'"
                ) from None
    settings = read_settings() if url is None or token is None else None
    if settings is not None:
        url = url or settings.server_url or DEFAULT_URL
        token = token or settings.server_token
    return ServerAddress((url or DEFAULT_URL).rstrip("/"), token or None)


Query: TypeAlias = Sequence[tuple[str, str]]

CONNECT_TIMEOUT_S = 10.0
# The maximum number of connections. Each call that waits for an execution uses one connection.
CONNECTIONS_MAX = 1_000
IDLE_CONNECTIONS_MAX = 50
# The time after the end of a long poll's interval within which its response must arrive.
LONG_POLL_MARGIN_S = 15.0
RETRY_PAUSE_S = 0.2
RETRY_PAUSE_S_MAX = 10.0
# The longest Retry-After that a call waits for. For a longer one, the call raises an error.
RETRY_AFTER_S_MAX = 60.0
# The read timeout of a stream. A server sends at least a comment every 15 s.
STREAM_TIMEOUT_S = 60.0
JSON_MEDIA_TYPE = "application/json"
STREAM_MEDIA_TYPE = "text/event-stream"
_UNAVAILABLE_STATUSES = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
_NONCE_RANGE = 1 << 48
EMPTY_ANSWER = b"{}"


class ServerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request. A request with an idempotency `key` is safe to repeat.

    `long_poll_s` is the time that the server may wait before it responds. `accepted_statuses` are
    statuses besides 2xx that are not errors.
    """

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    key: str | None = None
    is_repeatable: bool = False
    long_poll_s: float = 0.0
    accepted_statuses: Sequence[HTTPStatus] = ()

    @property
    def can_repeat(self) -> bool:
        return self.is_repeatable or self.key is not None


def _open_http_client(
    address: ServerAddress, headers: Mapping[str, str], clock: Clock
) -> httpx.AsyncClient:
    # A proxy from environment variables can't reach the loopback address of this machine.
    uses_proxy = not address.is_loopback and bool(getproxies())
    if uses_proxy:
        return httpx.AsyncClient(
            base_url=address.url,
            headers=headers,
            # Without TLS, `verify=False` saves the 0.2 s that it takes to read the root
            # certificates.
            verify=address.is_encrypted,
            limits=httpx.Limits(
                max_connections=CONNECTIONS_MAX, max_keepalive_connections=IDLE_CONNECTIONS_MAX
            ),
        )
    pool = HttpConnectionPool(
        clock,
        connections_max=CONNECTIONS_MAX,
        idle_max=IDLE_CONNECTIONS_MAX,
        ssl_context=httpx.create_ssl_context() if address.is_encrypted else None,
    )
    return httpx.AsyncClient(base_url=address.url, headers=headers, transport=pool)


class _FailedError(Exception):
    """A failed attempt of a request: its error, whether to retry, and the pause before it."""

    def __init__(
        self, error: RunnelError, *, is_retryable: bool, retry_after_s: float | None = None
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_retryable = is_retryable
        self.retry_after_s = retry_after_s


class Transport:
    """Sends HTTP requests, and repeats a failed request up to `retries` times.

    The pause between two attempts grows, unless the response has a Retry-After. A request that
    changes data is repeated only if it has a key, or if the server has certainly not received it.
    """

    def __init__(
        self,
        address: ServerAddress,
        clock: Clock,
        ids: IdGenerator,
        *,
        timeout_s: float,
        retries: int,
    ) -> None:
        self.address = address
        self._clock = clock
        self._ids = ids
        self._timeout_s = timeout_s
        self.retries = retries
        headers = {"Accept": JSON_MEDIA_TYPE}
        if address.token is not None:
            headers["Authorization"] = f"Bearer {address.token}"
        self._http = _open_http_client(address, headers, clock)

    async def close(self) -> None:
        await self._http.aclose()

    async def get(
        self, path: str, kind: type[T], query: Query = (), *, long_poll_s: float = 0.0
    ) -> T:
        request = ServerRequest(
            method="GET", path=path, query=query, is_repeatable=True, long_poll_s=long_poll_s
        )
        return await self.send(request, kind)

    async def post(
        self,
        path: str,
        kind: type[T],
        body: Json = None,
        *,
        key: str | None = None,
        is_repeatable: bool = False,
    ) -> T:
        """Sends a POST request with a JSON body; parts of the body may be `msgspec.Raw`."""
        data = None if body is None else msgspec.json.encode(body)
        request = ServerRequest(
            method="POST", path=path, body=data, key=key, is_repeatable=is_repeatable
        )
        return await self.send(request, kind)

    async def delete(self, path: str, kind: type[T]) -> T:
        return await self.send(ServerRequest(method="DELETE", path=path), kind)

    async def iter_items(
        self, path: str, kind: type[Page[T]], query: Query = ()
    ) -> AsyncIterator[T]:
        """Yields the items of all pages of a list; `query` contains the page size."""
        cursor: str | None = None
        while True:
            page = await self.get(
                path, kind, [*query, *([] if cursor is None else [("after", cursor)])]
            )
            for item in page.items:
                yield item
            cursor = page.next
            if cursor is None:
                return

    async def send(self, request: ServerRequest, kind: type[T]) -> T:
        """Sends a request and returns the view in the response.

        Raises the same error as a client over a store. Raises NoServerError if no server responds,
        and NotRunnelError if another program responds.
        """
        return self.decode_response(await self.exchange(request), kind)

    async def exchange(self, request: ServerRequest) -> httpx.Response:
        """Sends a request and returns the response, as `send` does; its status is not an error."""
        tried = 0
        while True:
            try:
                return await self._send_once(request)
            except _FailedError as failed:
                await self._pause_before_retry(failed, tried)
            tried += 1

    def decode_response(self, response: httpx.Response, kind: type[T]) -> T:
        """Returns the view in a response; raises NotRunnelError."""
        try:
            return decode_view(response.content or EMPTY_ANSWER, kind)
        except msgspec.ValidationError as error:
            raise self._unexpected_answer_error(error) from error
        except msgspec.DecodeError as error:
            raise self._foreign_response_error(response) from error

    def decode(self, data: bytes | str, kind: type[T]) -> T:
        """Decodes the data of a server-sent event, or a value; raises NotRunnelError."""
        try:
            return decode_view(data, kind)
        except msgspec.DecodeError as error:
            raise self._unexpected_answer_error(error) from error

    async def stream(self, path: str, last: str | None = None) -> AsyncIterator[ServerSentEvent]:
        """Yields the messages of a stream; with `last`, only those after the message with this id.

        After a lost connection, the method reconnects and continues after the last message. The
        iteration ends when the server reports that no message will follow.
        """
        tried = 0
        while True:
            try:
                async with self._open_stream(path, last) as answer:
                    if answer.status_code == HTTPStatus.NO_CONTENT:
                        return
                    async for message in iter_server_sent_events(answer):
                        last, tried = message.id, 0
                        yield message
                raise _FailedError(
                    self._no_server_error("the connection broke off"), is_retryable=True
                )
            except _FailedError as failed:
                await self._pause_before_retry(failed, tried)
            tried += 1

    async def read_chunks(self, path: str) -> AsyncIterator[bytes]:
        """Yields the body of a response in chunks, for a large value; `path` may have a query.

        Raises NoServerError if the connection breaks off after the first chunk.
        """
        tried, is_started = 0, False
        while True:
            try:
                async with self._open_stream(path, None, media_type=JSON_MEDIA_TYPE) as answer:
                    async for chunk in answer.aiter_bytes():
                        is_started = True
                        yield chunk
                return
            except _FailedError as failed:
                if is_started:
                    raise failed.error from failed.__cause__
                await self._pause_before_retry(failed, tried)
            tried += 1

    async def _pause_before_retry(self, failed: _FailedError, tried: int) -> None:
        """Pauses before the next attempt; raises the error if no attempt is left."""
        pause_s = (
            self._compute_pause_s(tried) if failed.retry_after_s is None else failed.retry_after_s
        )
        is_last = tried >= self.retries or pause_s > RETRY_AFTER_S_MAX
        if is_last or not failed.is_retryable:
            raise failed.error from failed.__cause__
        await self._clock.sleep(pause_s)

    @asynccontextmanager
    async def _open_stream(
        self, path: str, last: str | None, *, media_type: str = STREAM_MEDIA_TYPE
    ) -> AsyncIterator[httpx.Response]:
        call = ServerRequest(method="GET", path=path, is_repeatable=True)
        headers = {"Accept": media_type} | ({} if last is None else {"Last-Event-ID": last})
        timeout = httpx.Timeout(STREAM_TIMEOUT_S, connect=min(CONNECT_TIMEOUT_S, self._timeout_s))
        try:
            async with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise self._build_failure(answer, call)
                yield answer
        except httpx.RequestError as error:
            raise _FailedError(self._unreachable_error(error), is_retryable=True) from error

    async def _send_once(self, request: ServerRequest) -> httpx.Response:
        headers = {} if request.body is None else {"Content-Type": JSON_MEDIA_TYPE}
        if request.key is not None:
            check_idempotency_key(request.key)
            headers["Idempotency-Key"] = request.key
        longest_s = self._timeout_s + (
            request.long_poll_s + LONG_POLL_MARGIN_S if request.long_poll_s else 0.0
        )
        try:
            answer = await self._http.request(
                request.method,
                request.path,
                params=httpx.QueryParams([*request.query]),
                content=request.body,
                headers=httpx.Headers(headers, encoding="utf-8"),
                timeout=httpx.Timeout(longest_s, connect=min(CONNECT_TIMEOUT_S, self._timeout_s)),
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _FailedError(self._unreachable_error(error), is_retryable=True) from error
        except httpx.RequestError as error:
            raise _FailedError(
                self._unreachable_error(error), is_retryable=request.can_repeat
            ) from error
        if not answer.is_success and answer.status_code not in request.accepted_statuses:
            raise self._build_failure(answer, request)
        return answer

    def _build_failure(self, response: httpx.Response, request: ServerRequest) -> Exception:
        status = response.status_code
        error = decode_error(status, response.content) or self._foreign_response_error(response)
        if isinstance(error, NotAuthenticatedError) and self.address.token is None:
            error = NotAuthenticatedError(
                f"the server at {self.address.display_url} requires a token: set RUNNEL_TOKEN; "
                "an administrator of the server creates a token with 'runnel token create'"
            )
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return _FailedError(
                error, is_retryable=True, retry_after_s=self._parse_retry_after_s(response)
            )
        if status in _UNAVAILABLE_STATUSES:
            return _FailedError(
                error,
                is_retryable=request.can_repeat,
                retry_after_s=self._parse_retry_after_s(response),
            )
        return error

    def _unexpected_answer_error(self, error: msgspec.DecodeError) -> NotRunnelError:
        return NotRunnelError(self.address.display_url, f"with unexpected JSON ({error})")

    def _foreign_response_error(self, response: httpx.Response) -> RunnelError:
        # A proxy sends these statuses while the server after it is down.
        if response.status_code in _UNAVAILABLE_STATUSES:
            reason = f"it answers {response.status_code} {response.reason_phrase}"
            return self._no_server_error(reason)
        kind = response.headers.get("content-type", "nothing").partition(";")[0]
        return NotRunnelError(self.address.display_url, f"{response.status_code} with {kind}")

    def _unreachable_error(self, error: httpx.RequestError) -> RunnelError:
        if isinstance(error, httpx.TimeoutException):
            return self._no_server_error("the server does not respond in time")
        return self._no_server_error(find_failure_reason(error))

    def _no_server_error(self, reason: str) -> NoServerError:
        remedy = "check that the server runs and listens at this address"
        return NoServerError(
            "Runnel server", self.address.display_url, reason=reason, remedy=remedy
        )

    def _parse_retry_after_s(self, response: httpx.Response) -> float | None:
        """Returns the Retry-After of a response in seconds, from seconds or a date.

        Returns None if the header is missing or invalid.
        """
        text = response.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._clock.now())
        except ValueError:
            return None

    def _compute_pause_s(self, tried: int) -> float:
        """Returns a pause that doubles with each attempt.

        The pause is shortened at random by up to a half.
        """
        longest_s = min(RETRY_PAUSE_S_MAX, RETRY_PAUSE_S * (1 << tried))
        return longest_s * (1 - int(self._ids.nonce(), 16) / _NONCE_RANGE / 2)


# Segments of a path.

_DOT_SEGMENTS = frozenset({".", ".."})


def quote_path_segment(text: str) -> str:
    """Quotes a text as one segment of a URL path.

    Half a surrogate pair, which no name contains, is replaced. `.` and `..` are quoted too, because
    a path with them is the path of another resource: a cancel of the execution '.' once cancelled
    many executions.
    """
    quoted = quote(text.encode(errors="replace"), safe="")
    return quoted.replace(".", "%2E") if text in _DOT_SEGMENTS else quoted
