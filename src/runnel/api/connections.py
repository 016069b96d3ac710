"""Connections on which a request has to arrive in time: an open one costs the server something."""

import asyncio
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from runnel.api.problems import malformed_request

# From the first byte of a request, or from the beginning of the connection, to the last byte of
# its body. 10 MB take that long at 1.3 Mbit/s.
REQUEST_S = 60.0
_ARRIVING = frozenset({h11.IDLE, h11.SEND_BODY})
_UNANSWERED = frozenset({h11.IDLE, h11.SEND_RESPONSE})


class TimelyProtocol(H11Protocol):
    """uvicorn itself waits for ever for the rest of a request that has begun."""

    request_s = REQUEST_S
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """What came together with the request before may be the beginning of the next one."""
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._look()

    def send_400_response(self, msg: str) -> None:
        """What is no request of HTTP is refused in the same form as one that asks for too much.

        Whatever the application would still say is dropped, and after the beginning of an answer
        there is no place for another one.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in _UNANSWERED:
            self._refuse()
        self.transport.close()

    def _refuse(self) -> None:
        answer = malformed_request("what came is no request of HTTP/1.1")
        head = h11.Response(
            status_code=answer.status_code,
            headers=answer.raw_headers,
            reason=HTTPStatus(answer.status_code).phrase,
        )
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.conn.their_state not in _ARRIVING or self.transport.is_closing():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_s, self._hang_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        self._deadline = None
        if self.conn.their_state in _ARRIVING:
            self.transport.close()
