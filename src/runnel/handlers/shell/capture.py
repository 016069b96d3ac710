"""What a program writes: its beginning is kept, and its last words for an error."""

from runnel.handlers.shortening import CUT

TAIL_BYTES = 2_000


class Capture:
    """`is_cut` tells that the program wrote more than `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._heard = 0
        self.is_cut = False

    def add(self, chunk: bytes) -> None:
        kept = chunk[: self._bytes_max - self._size]
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
        self._heard += len(chunk)
        self.is_cut = self._heard > self._bytes_max
        self._tail = (self._tail + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]

    def data(self) -> bytes:
        return b"".join(self._parts)

    def text(self) -> str:
        """What is no UTF-8 is replaced, not refused: a program may write anything."""
        return self.data().decode(errors="replace")

    def tail(self) -> str:
        """Marked if something stood before it."""
        text = self._tail.decode(errors="replace").strip()
        return CUT + text if self._heard > TAIL_BYTES else text
