"""Free ports on the loopback address."""

import socket
from typing import Protocol

LOOPBACK = "127.0.0.1"
# Below the ports that Linux (32768) and macOS (49152) give to outgoing connections: a client that
# tries to reconnect to a dead server within that range can get the server's port as its own, and
# is then connected to itself while the server can't start again.
FIRST, LAST = 20_000, 32_000
TRIES = 100


class Chance(Protocol):
    def nonce(self) -> str: ...


def free_port(chance: Chance) -> int:
    """Free a moment ago: who starts a server on it must be ready for it to be taken."""
    for _ in range(TRIES):
        port = FIRST + int(chance.nonce(), 16) % (LAST - FIRST)
        if _is_free(port):
            return port
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:  # taken, or kept from us
            return False
    return True
