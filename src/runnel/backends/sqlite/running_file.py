"""Which attempts have begun, in a file that is mapped into memory and outlives its process.

An attempt is in it from its start to its end. Whoever owns the partition next, and so knows that
the former owner is dead, finds in it what that process was running when it died. Writing is a
copy within memory: no system call, no fsync. So it survives the death of the process and not that
of the machine, which is all it is for: a task can kill the one, hardly the other. One begin and
one end take 0.6 µs together.

There is one file per partition, made at the first start: the partition's lock guards it too.
Nothing here needs a checksum: a slot counts only if it is, with its nonce, a token in flight.
"""

import mmap
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from runnel.backends.local.marks import NO_MARK
from runnel.core.ids import Ref, Token, ref_of

# The last character is the version: a file with another one is not read.
MAGIC = b"runnel running 1"
SLOTS = 128
SLOT_BYTES = 512
FILE_BYTES = SLOT_BYTES * (1 + SLOTS)
# A mark is where its slot begins; the magic and the byte behind it have the place of the first.
MARKS = range(SLOT_BYTES, FILE_BYTES, SLOT_BYTES)
TRIAL_AT = len(MAGIC)

# The first byte of a slot, written after the token and the end of the line that follow it.
_FREE, _BEGUN, _NOTED, _TRIED = 0, ord("b"), ord("n"), ord("t")

_NO_MEMORY = bytearray()

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Token).decode


class RunningFile:
    """`suspects` had just begun when the former owner died, True for one that was on trial.

    Their slots are kept until they begin again, so that no further death makes them forgotten.
    """

    def __init__(self, path: Path) -> None:
        self.suspects: dict[Ref, bool] = {}
        self._path = path
        self._died: dict[Token, bool] = {}
        self._was_trial = False
        self._reserved: dict[Ref, int] = {}
        self._free: list[int] = []
        self._memory: mmap.mmap | bytearray = _NO_MEMORY
        self._may_make = True
        if (found := _open(path)) is not None:
            self._memory = found
            self._read(found)

    def has_killed(self, token: Token) -> bool | None:
        """Whether this attempt may have killed the former owner; None when nothing is known.

        When a suspect was on trial, it was that one and none of those that ran beside it.
        """
        if self._was_trial:
            return self._died.get(token, False)
        return True if token in self._died else None

    def begin(self, token: Token, state: int = _BEGUN) -> int:
        """The mark to end it by; NO_MARK when there is no room: then its death is not counted."""
        line = _encode(token) + b"\n"
        if len(line) >= SLOT_BYTES or not (self._free or self._make()):
            return NO_MARK
        mark = self._free.pop()
        memory = self._memory
        memory[mark + 1 : mark + 1 + len(line)] = line
        memory[mark] = state
        return mark

    def begin_trial(self, token: Token) -> int:
        self._give_up_slot(ref_of(token))
        return self.begin(token, _TRIED)

    def note(self, mark: int) -> None:
        """It has run for a while: its start is in the history, and it is no suspect any more."""
        self._memory[mark] = _NOTED

    def end(self, mark: int) -> None:
        self._memory[mark] = _FREE
        self._free.append(mark)

    def set_trial(self, *, is_on: bool) -> None:
        if self._memory is not _NO_MEMORY:
            self._memory[TRIAL_AT] = is_on

    def _give_up_slot(self, ref: Ref) -> None:
        """That which is kept for a suspect; the next to begin gets it."""
        mark = self._reserved.pop(ref, NO_MARK)
        if mark != NO_MARK:
            self.end(mark)

    def close(self, unfinished: Collection[str] | None = None) -> None:
        """Leaves nothing behind but the suspects that have not begun again.

        `unfinished` are the executions that still run: suspects of others are never tried. Without
        it all are kept.
        """
        memory, self._memory = self._memory, _NO_MEMORY
        self._free.clear()
        self._may_make = False
        if isinstance(memory, bytearray):
            return
        memory[TRIAL_AT] = False
        kept = {
            mark
            for ref, mark in self._reserved.items()
            if unfinished is None or ref.execution_id in unfinished
        }
        for mark in MARKS:
            if mark not in kept:
                memory[mark] = _FREE
        memory.close()
        if not kept:
            with suppress(OSError):  # an empty one that stays is read as empty
                self._path.unlink(missing_ok=True)

    def _make(self) -> bool:
        """False when all slots are taken, or when no file can be made; that is tried once."""
        if self._memory is _NO_MEMORY and self._may_make:
            self._may_make = False
            if (made := _create(self._path)) is not None:
                self._memory = made
                self._free.extend(reversed(MARKS))
        return bool(self._free)

    def _read(self, memory: mmap.mmap) -> None:
        self._was_trial = bool(memory[TRIAL_AT])
        memory[TRIAL_AT] = False
        for mark in reversed(MARKS):
            token, state = _token_at(memory, mark), memory[mark]
            if token is not None:
                self._died[token] = state == _TRIED
            if token is None or state == _NOTED or ref_of(token) in self._reserved:
                self._free.append(mark)
                continue
            self._reserved[ref_of(token)] = mark
            self.suspects[ref_of(token)] = state == _TRIED


def _token_at(memory: mmap.mmap, mark: int) -> Token | None:
    """None for a free slot, and for one whose writer died before it was done."""
    if memory[mark] == _FREE:
        return None
    line, _, _ = memory[mark + 1 : mark + SLOT_BYTES].partition(b"\n")
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _open(path: Path) -> mmap.mmap | None:
    """None when there is no file that can be read; one of another format is removed."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(handle).st_size == FILE_BYTES and os.pread(handle, len(MAGIC), 0) == MAGIC:
            return mmap.mmap(handle, FILE_BYTES)
    except OSError:
        return None  # a file system that can't map files
    finally:
        os.close(handle)
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return None


def _create(path: Path) -> mmap.mmap | None:
    """None where it can't be made: tasks run all the same, as if it were full.

    All of it is written, not only its size set: a write into a hole of a mapped file ends the
    process when the disk is full.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        if os.write(handle, MAGIC.ljust(FILE_BYTES, b"\0")) == FILE_BYTES:
            return mmap.mmap(handle, FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
    return None
