"""One connection to the server: what is asked is sent at once, answers come in the same order."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import hiredis

Arg: TypeAlias = str | bytes | int | float
Reply: TypeAlias = Any
"""What Redis answers: its shape is that of the command. A refusal is a `hiredis.ReplyError`."""

# What is read at once: a longer answer takes several turns.
BUFFER_BYTES = 65_536
_NOT_YET = object()
_MESSAGE = b"message"


class LineError(Exception):
    """The connection can't be made, or is lost; what was asked may have been done or not."""


def pack(args: tuple[Arg, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # it takes any length
    return packed


class Line(asyncio.BufferedProtocol):
    """`run_id` names the life of the server that it leads to.

    Who asks may give up: its answer is thrown away when it comes, and those behind it get theirs.
    A server that leaves a question without an answer for `call_s` has lost the connection, and
    with it all that was asked.
    """

    def __init__(self, call_s: float) -> None:
        self.run_id = ""
        self.is_open = False
        self.answered: Callable[[], None] | None = None
        """Called once for each answer, and for each that will never come."""
        self.told: Callable[[bytes, bytes], None] | None = None
        """Called with the channel and the words of each message, for a line that has subscribed."""
        self._call_s = call_s
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing of the connection is left."""
        self._transport: asyncio.Transport | None = None
        # A view: TLS of asyncio writes into a part of it, and a part of a bytearray is a copy.
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._asked: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._unsent: list[bytes] = []
        self._alarm: asyncio.TimerHandle | None = None

    def ask(self, packed: bytes, *, wait_s: float = 0.0) -> asyncio.Future[Reply]:
        """Raises LineError, and has sent nothing, when the connection is not open."""
        if self._transport is None or not self.is_open:
            raise LineError("the connection is closed")
        answer: asyncio.Future[Reply] = self._loop.create_future()
        due = self._loop.time() + self._call_s + wait_s
        self._asked.append((answer, due))
        if self._alarm is None:
            self._alarm = self._loop.call_at(due, self._look)
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(packed)
        return answer

    def close(self) -> None:
        """At once: whoever waits for an answer gets a LineError."""
        self._fail("the connection was closed here")

    # -- what asyncio calls --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # that of a stream, as was asked for
        self.is_open = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader, asked, answered = self._reader, self._asked, self.answered
        reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # it takes any buffer
        try:
            while (reply := reader.gets()) is not _NOT_YET:
                if self.told is not None and isinstance(reply, list) and reply[0] == _MESSAGE:
                    self.told(reply[1], reply[2])
                    continue
                if not asked:
                    self._fail(f"the server said what nobody had asked for: {reply}")
                    return
                answer, _ = asked.popleft()
                if not answer.done():
                    answer.set_result(reply)
                if answered is not None:
                    answered()
        except hiredis.ProtocolError as error:
            self._fail(f"what answers there is no Redis: {error}")

    def eof_received(self) -> None:
        self._fail("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was lost" if exc is None else f"the connection was lost: {exc}")
        if not self.lost.done():
            self.lost.set_result(None)

    def _send(self) -> None:
        """What was asked in one turn of the loop goes together: it is read and answered so too."""
        unsent, self._unsent = self._unsent, []
        if self._transport is not None and self.is_open:
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    # -- patience ------------------------------------------------------------------------------

    def _look(self) -> None:
        """One alarm for all that is asked: it costs a timer per `call_s`, not one per call."""
        self._alarm = None
        if not self._asked:
            return
        due = self._asked[0][1]
        if self._loop.time() >= due:
            self._fail(f"no answer within {self._call_s:g} s")
        else:
            self._alarm = self._loop.call_at(due, self._look)

    def _fail(self, why: str) -> None:
        self.is_open = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._transport is not None:
            self._transport.abort()
        asked, self._asked = self._asked, deque()
        for answer, _ in asked:
            if not answer.done():
                answer.set_exception(LineError(why))
            if self.answered is not None:
                self.answered()
