"""As much of the Redis protocol as it takes to ask a server how it is."""

import socket

from runnel.runtime.servers.ports import LOOPBACK

LIMIT_S = 1.0
TOO_SOON = (ConnectionError, TimeoutError)


def answers(port: int, password: str) -> bool:
    """False as long as it loads its data."""
    try:
        return ask(port, password, "PING") == "PONG"
    except TOO_SOON:
        return False


def ask(port: int, password: str, command: str) -> str:
    """The answer to one command without spaces in its words; an error starts with "-".

    Raises OSError when there is no whole answer within a second.
    """
    with socket.create_connection((LOOPBACK, port), timeout=LIMIT_S) as link:
        link.sendall(f"AUTH {password}\r\n{command}\r\n".encode())
        with link.makefile("r", encoding="utf-8", newline="\r\n") as replies:
            if _line(replies.readline()) != "+OK":
                return ""
            head = _line(replies.readline())
            return replies.read(int(head[1:])) if head.startswith("$") else head.removeprefix("+")


def _line(text: str) -> str:
    if not text.endswith("\r\n"):
        raise ConnectionResetError("the server ended in the middle of its answer")
    return text.removesuffix("\r\n")
