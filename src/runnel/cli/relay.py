"""Catches what is written to the terminal past Python, as child processes do.

Written straight to the terminal, it would tear the live view; so it comes through a pipe and is
printed above the view. What this process itself prints does not take that way: the thread that
reads the pipe could wait for itself.
"""

import asyncio
import os
from collections.abc import Callable
from typing import TextIO

from runnel.cli.streams import STDERR, STDOUT

CHUNK_BYTES = 65_536
COLUMNS_DEFAULT, LINES_DEFAULT = 80, 25


class Relay:
    """From its making until `end`; `terminal` is where stderr went before."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._loop = asyncio.get_running_loop()
        self._saved = {number: os.dup(number) for number in (STDOUT, STDERR)}
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        for number in self._saved:
            os.dup2(write, number)
        os.close(write)
        self.terminal: TextIO = os.fdopen(os.dup(self._saved[STDERR]), "w", errors="replace")
        self._loop.add_reader(self._read, self._hear)

    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal: the standard streams lead elsewhere now."""
        columns, lines = os.get_terminal_size(self._saved[STDERR])
        return columns or COLUMNS_DEFAULT, lines or LINES_DEFAULT

    def end(self) -> None:
        for number, saved in self._saved.items():
            os.dup2(saved, number)
            os.close(saved)
        self._loop.remove_reader(self._read)
        while self._hear():
            continue
        os.close(self._read)

    def _hear(self) -> bool:
        try:
            data = os.read(self._read, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._on_text(data.decode(errors="replace").removesuffix("\n"))
        return bool(data)
