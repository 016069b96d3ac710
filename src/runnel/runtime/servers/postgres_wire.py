"""As much of PostgreSQL's protocol as it takes to see that a server serves."""

import socket
import struct
from io import BufferedReader

from runnel.runtime.servers.ports import LOOPBACK

LIMIT_S = 1.0
PROTOCOL = 3 << 16
SEND_PASSWORD = 3
HEADER = struct.Struct("!cI")


def answers(port: int, *, user: str, password: str) -> bool:
    """Logs in; False when nobody listens yet, or when the server still starts or recovers."""
    try:
        with (
            socket.create_connection((LOOPBACK, port), timeout=LIMIT_S) as link,
            link.makefile("rb") as replies,
        ):
            link.sendall(_startup(user))
            while (reply := _next(replies))[0] != b"Z":  # ready for a query
                match reply:
                    case (b"E", _):
                        return False
                    case (b"R", body) if struct.unpack_from("!I", body) == (SEND_PASSWORD,):
                        link.sendall(_message(b"p", password.encode() + b"\0"))
            link.sendall(_message(b"X", b""))
            return True
    except (ConnectionError, TimeoutError):
        return False


def _startup(user: str) -> bytes:
    words = b"\0".join([b"user", user.encode(), b"database", b"postgres", b"", b""])
    return _message(b"", struct.pack("!I", PROTOCOL) + words)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _next(replies: BufferedReader) -> tuple[bytes, bytes]:
    head = replies.read(HEADER.size)
    if len(head) < HEADER.size:
        raise ConnectionResetError("the server ended in the middle of its answer")
    kind, length = HEADER.unpack(head)
    return kind, replies.read(length - 4)
