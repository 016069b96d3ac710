"""Requests to a server: answered, tried again where that is safe, or refused with an error."""

import os
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from runnel import errors
from runnel.authoring.payloads import check_text
from runnel.client.idempotency import KEY_CHARS_MAX
from runnel.core.values import Json
from runnel.core.wording import quoted
from runnel.errors import (
    InputError,
    NoServerError,
    NotAuthenticatedError,
    NotRunnelError,
    RunnelError,
)
from runnel.ports.clock import Clock, Ids
from runnel.settings import read_settings
from runnel.settings.variables import VARIABLES

# Problem details as the errors that they were on the server.


class _Problem(msgspec.Struct, frozen=True):
    """What a client needs of one; `details` are the fields that the error has besides its text."""

    detail: str
    code: str
    details: dict[str, Json] = {}


_decode = msgspec.json.Decoder(_Problem).decode


def _classes() -> Iterator[tuple[str, type[RunnelError]]]:
    for name in errors.__all__:
        found = getattr(errors, name)
        if "code" in vars(found):
            yield found.code, found


CLASSES: Mapping[str, type[RunnelError]] = dict(_classes())


def error_of(status: int, body: bytes) -> RunnelError | None:
    """None for an answer that no Runnel gives.

    A code that this version does not know is an InputError if the caller has to do something
    about it, and a RunnelError otherwise.
    """
    try:
        problem = _decode(body)
    except msgspec.MsgspecError:
        return None
    is_ours = status < HTTPStatus.INTERNAL_SERVER_ERROR
    kind = CLASSES.get(problem.code, InputError if is_ours else RunnelError)
    return _made(kind, problem)


def _made(kind: type[RunnelError], problem: _Problem) -> RunnelError:
    """Without its constructor, which would write the sentence again."""
    error = kind.__new__(kind)
    error.args = (problem.detail,)
    for name, value in problem.details.items():
        setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


# Why a server could not be reached, in the words of whoever knew it first.


def reason_of(error: httpx.RequestError) -> str:
    """What the operating system said, if it did: libraries say that 'all attempts failed'."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ssl.SSLError):  # whose number is none of the operating system
            return _tls_reason(found)
        if isinstance(found, OSError) and found.errno is not None:
            said = os.strerror(found.errno) if found.errno > 0 else str(found.strerror)
            return said[:1].lower() + said[1:]
        if isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        else:
            found = found.__cause__ or found.__context__
    return str(error) or type(error).__name__


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS, as https:// says"
    return f"TLS failed ({error.reason or error})"


# Server-sent events, as a client reads them.


class Message(msgspec.Struct, frozen=True):
    """Whoever comes back with the `id` gets what came behind it."""

    id: str
    event: str
    data: Json


async def messages(answer: httpx.Response) -> AsyncIterator[Message]:
    """Until the server ends the stream; comments, which keep it open, are left out."""
    fields: dict[str, str] = {}
    async for line in _lines(answer):
        name, _, value = line.partition(":")
        if line:
            fields[name] = value.removeprefix(" ")
        elif "event" in fields:
            data = msgspec.json.decode(fields.get("data", "null"))
            yield Message(fields.get("id", ""), fields["event"], data)
            fields = {}


async def _lines(answer: httpx.Response) -> AsyncIterator[str]:
    """Those that have ended. Not httpx's own: for it, U+0085, U+2028 and U+2029 end a line too, and
    JSON may have them inside a text.
    """
    rest: list[bytes] = []
    async for data in answer.aiter_bytes():
        first, *others = data.split(b"\n")
        rest.append(first)
        for each in others:
            yield b"".join(rest).removesuffix(b"\r").decode(errors="replace")
            rest = [each]


# Idempotency keys as a header can have them.

_BLANKS = " \t"
_LAST_CONTROL, _DELETE = "\x1f", "\x7f"


def check_key(key: str) -> None:
    """Raises InputError for one that a header can't have, and what a local call does."""
    check_text(key, "the idempotency key", chars_max=KEY_CHARS_MAX)
    is_torn = any(each <= _LAST_CONTROL or each == _DELETE for each in key)
    if is_torn or key != key.strip(_BLANKS):
        raise InputError(
            "over HTTP, an idempotency key has no control characters and no blanks around it, "
            f"got {quoted(key)}"
        )


# An object that a server has answered.


class Fields(dict[str, Json]):
    """Raises NotRunnelError for what it lacks: whoever answers so is something else."""

    def __init__(self, found: Mapping[str, Json], address: str) -> None:
        super().__init__(found)
        self._address = address

    def __missing__(self, name: str) -> Json:
        raise self.foreign(f"an object without '{name}'")

    def foreign(self, found: str) -> NotRunnelError:
        return NotRunnelError(self._address, found)


# Where a server is, and what opens its door.

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT = "http://127.0.0.1:8080"
SERVER, TOKEN = "RUNNEL_SERVER", "RUNNEL_TOKEN"


class ServerAddress(msgspec.Struct, frozen=True):
    url: str
    token: str | None = None

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.url).hostname in LOOPBACK

    @property
    def is_encrypted(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def shown(self) -> str:
        return VARIABLES[SERVER].hide(self.url)


def server_address(url: str | None = None, token: str | None = None) -> ServerAddress:
    """What is not given is taken from the environment; raises InputError."""
    given = {SERVER: url, TOKEN: token}
    for name, text in given.items():
        if text is not None:
            variable = VARIABLES[name]
            try:
                variable.parse(text)
            except ValueError as error:
                what = "url" if name == SERVER else "token"
                raise InputError(f"{what}: expected {error}, got '{variable.hide(text)}'") from None
    settings = read_settings() if url is None or token is None else None
    if settings is not None:
        url = url or settings.server_url or DEFAULT
        token = token or settings.server_token
    return ServerAddress((url or DEFAULT).rstrip("/"), token or None)


Query: TypeAlias = Sequence[tuple[str, str]]

CONNECT_S = 10.0
# Whoever waits for an execution has a connection of its own.
CONNECTIONS_MAX = 1_000
KEPT_OPEN_MAX = 50
# An answer that was asked to come after so long is given this much more.
MARGIN_S = 15.0
PAUSE_S = 0.2
PAUSE_S_MAX = 10.0
# Whoever is asked to come back later than this is told so instead.
RETRY_AFTER_S_MAX = 60.0
# A server says something on a stream every fifteen.
SILENT_S = 60.0
JSON = "application/json"
STREAM = "text/event-stream"
_AWAY = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
_CHANCES = 1 << 48


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request; `key` makes one that changes something safe to repeat.

    `waits_s` is how long the server may take on purpose; `answers` are statuses of good answers
    besides 2xx. All answers are objects, unless it `is_for_any` value.
    """

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    key: str | None = None
    is_repeatable: bool = False
    waits_s: float = 0.0
    answers: Sequence[HTTPStatus] = ()
    is_for_any: bool = False

    @property
    def may_repeat(self) -> bool:
        return self.is_repeatable or self.key is not None


class _FailedError(Exception):
    """One try: what it came to, whether another makes sense, and when."""

    def __init__(self, error: RunnelError, *, again: bool, after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.again = again
        self.after_s = after_s


class Transport:
    """`retries` are tries after the first, with growing pauses, or those that the server asks for.

    What changes something is repeated only if it has a key, or if the server has surely not
    acted on it.
    """

    def __init__(
        self,
        address: ServerAddress,
        clock: Clock,
        ids: Ids,
        *,
        timeout_s: float,
        retries: int,
    ) -> None:
        self.address = address
        self._clock = clock
        self._ids = ids
        self._timeout_s = timeout_s
        self.retries = retries
        headers = {"Accept": JSON}
        if address.token is not None:
            headers["Authorization"] = f"Bearer {address.token}"
        self._http = httpx.AsyncClient(
            base_url=address.url,
            headers=headers,
            # A proxy that the environment names does not lead back to this machine.
            trust_env=not address.is_loopback,
            # Where nothing is encrypted: reading the certificates of all authorities takes 0.2 s.
            verify=address.is_encrypted,
            limits=httpx.Limits(
                max_connections=CONNECTIONS_MAX, max_keepalive_connections=KEPT_OPEN_MAX
            ),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, path: str, query: Query = (), *, waits_s: float = 0.0) -> Json:
        call = Call(method="GET", path=path, query=query, is_repeatable=True, waits_s=waits_s)
        return await self.send(call)

    async def post(self, path: str, body: Json = None, *, key: str | None = None) -> Json:
        """`body` may hold JSON that is written already, as `msgspec.Raw`."""
        data = None if body is None else msgspec.json.encode(body)
        return await self.send(Call(method="POST", path=path, body=data, key=key))

    async def send(self, call: Call) -> Json:
        """The body of a good answer; raises the error that a local call would.

        Raises NoServerError when nobody answers, NotRunnelError when somebody else does.
        """
        tried = 0
        while True:
            try:
                return await self._try(call)
            except _FailedError as failed:
                await self._rest(failed, tried)
            tried += 1

    async def stream(self, path: str) -> AsyncIterator[Message]:
        """What a server tells as it happens; after a break it goes on behind the last message.

        Ends when the server says that there is nothing more to come.
        """
        last: str | None = None
        tried = 0
        while True:
            try:
                async with self._stream(path, last) as answer:
                    if answer.status_code == HTTPStatus.NO_CONTENT:
                        return
                    async for message in messages(answer):
                        last, tried = message.id, 0
                        yield message
                raise _FailedError(self._no_server("it breaks off"), again=True)
            except _FailedError as failed:
                await self._rest(failed, tried)
            tried += 1

    async def _rest(self, failed: _FailedError, tried: int) -> None:
        """Before the next try; raises what failed when there is to be none."""
        pause_s = self._pause_s(tried) if failed.after_s is None else failed.after_s
        is_over = tried >= self.retries or pause_s > RETRY_AFTER_S_MAX
        if is_over or not failed.again:
            raise failed.error from failed.__cause__
        await self._clock.sleep(pause_s)

    @asynccontextmanager
    async def _stream(self, path: str, last: str | None) -> AsyncIterator[httpx.Response]:
        call = Call(method="GET", path=path, is_repeatable=True)
        headers = {"Accept": STREAM} | ({} if last is None else {"Last-Event-ID": last})
        timeout = httpx.Timeout(SILENT_S, connect=min(CONNECT_S, self._timeout_s))
        try:
            async with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise self._failure(answer, call)
                yield answer
        except httpx.RequestError as error:
            raise _FailedError(self._unreachable(error), again=True) from error

    async def _try(self, call: Call) -> Json:
        headers = {} if call.body is None else {"Content-Type": JSON}
        if call.key is not None:
            check_key(call.key)
            headers["Idempotency-Key"] = call.key
        longest_s = self._timeout_s + (call.waits_s + MARGIN_S if call.waits_s else 0.0)
        try:
            answer = await self._http.request(
                call.method,
                call.path,
                params=httpx.QueryParams([*call.query]),
                content=call.body,
                headers=httpx.Headers(headers, encoding="utf-8"),
                timeout=httpx.Timeout(longest_s, connect=min(CONNECT_S, self._timeout_s)),
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _FailedError(self._unreachable(error), again=True) from error
        except httpx.RequestError as error:
            raise _FailedError(self._unreachable(error), again=call.may_repeat) from error
        if answer.is_success or answer.status_code in call.answers:
            return self._content(answer, call)
        raise self._failure(answer, call)

    def _content(self, answer: httpx.Response, call: Call) -> Json:
        try:
            found = msgspec.json.decode(answer.content) if answer.content else {}
        except msgspec.DecodeError as error:
            raise self._foreign(answer) from error
        if isinstance(found, dict):
            return Fields(found, self.address.shown)
        if not call.is_for_any:
            raise NotRunnelError(self.address.shown, f"{answer.status_code} without an object")
        return found

    def _failure(self, answer: httpx.Response, call: Call) -> Exception:
        status = answer.status_code
        error = error_of(status, answer.content) or self._foreign(answer)
        if isinstance(error, NotAuthenticatedError) and self.address.token is None:
            error = NotAuthenticatedError(
                f"the server at {self.address.shown} wants a token: set RUNNEL_TOKEN; whoever runs "
                "the server makes one with 'runnel token create'"
            )
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return _FailedError(error, again=True, after_s=self._after_s(answer))
        if status in _AWAY:
            return _FailedError(error, again=call.may_repeat, after_s=self._after_s(answer))
        return error

    def _foreign(self, answer: httpx.Response) -> RunnelError:
        if answer.status_code in _AWAY:  # whatever stands before a server that is away
            reason = f"it answers {answer.status_code} {answer.reason_phrase}"
            return self._no_server(reason)
        kind = answer.headers.get("content-type", "nothing").partition(";")[0]
        return NotRunnelError(self.address.shown, f"{answer.status_code} with {kind}")

    def _unreachable(self, error: httpx.RequestError) -> RunnelError:
        if isinstance(error, httpx.TimeoutException):
            return self._no_server("it does not answer in time")
        return self._no_server(reason_of(error))

    def _no_server(self, reason: str) -> NoServerError:
        remedy = "look whether it runs, and whether this is where it listens"
        return NoServerError("Runnel server", self.address.shown, reason=reason, remedy=remedy)

    def _after_s(self, answer: httpx.Response) -> float | None:
        """Seconds, or a date; None when it says nothing that can be understood."""
        text = answer.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._clock.now())
        except ValueError:
            return None

    def _pause_s(self, tried: int) -> float:
        """Twice as long each time, and by chance up to half of that less: others wait too."""
        longest_s = min(PAUSE_S_MAX, PAUSE_S * (1 << tried))
        return longest_s * (1 - int(self._ids.nonce(), 16) / _CHANCES / 2)


# Steps of a path.

_DOTS = frozenset({".", ".."})


def step(text: str) -> str:
    """One step, whatever is in it; half a surrogate pair is in no name that a server knows.

    Dots are quoted where they would mean this step or the one above: to cancel the execution '.'
    was to cancel many.
    """
    quoted = quote(text.encode(errors="replace"), safe="")
    return quoted.replace(".", "%2E") if text in _DOTS else quoted
