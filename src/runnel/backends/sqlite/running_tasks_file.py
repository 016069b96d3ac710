"""Which attempts have begun, in a file that is mapped into memory and outlives its process.

An attempt is in it from its begin until its report is taken. Whoever owns the partition next, and
so knows that the former owner is dead, finds in it what that process was running when it died.
Writing is a copy within memory: no system call, no fsync. So it survives the death of the process
and not that of the machine, which is all it is for: a task can kill the one, hardly the other.
One begin and one end take 1.0 µs together.

There is one file per partition, made at the first begin: the partition's lock guards it too. An
attempt is there as the digest of its token, nonce and all, so whatever else stands in a slot (half
of a digest, one of an older life) belongs to nothing that is in flight, and counts for nothing.
"""

import mmap
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from runnel.backends.local.task_board import NO_SLOT
from runnel.core.ids import TaskToken

# The last character is the version: a file with another one is not read.
MAGIC = b"runnel running 3"
# Behind the magic: not zero once the process was told to end.
CLEAN_SHUTDOWN_OFFSET = len(MAGIC)
DIGEST_BYTES = 16
SLOT_BYTES = 32
SLOTS = 2_047
FILE_BYTES = SLOT_BYTES * (1 + SLOTS)
# A mark is where its slot begins; the magic and the excuse have the place of the first.
SLOT_OFFSETS = range(SLOT_BYTES, FILE_BYTES, SLOT_BYTES)

# The first byte of a slot, written after the digest that follows it.
_FREE, _STARTED = 0, 1

_NO_MEMORY = bytearray()

_encode = msgspec.json.Encoder().encode


class RunningTasksFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._running_at_crash: set[bytes] = set()
        self._was_clean_shutdown = False
        self._free: list[int] = []
        self._memory: mmap.mmap | bytearray = _NO_MEMORY
        self._can_create = True
        if (existing := _map_existing(path)) is not None:
            self._memory = existing
            self._read(existing)

    def was_running_at_crash(self, token: TaskToken) -> bool | None:
        """True for an attempt that ran when the former owner died; None when nothing is known.

        False for all when that one was told to end: then it was not they that ended it.
        """
        if self._was_clean_shutdown:
            return False
        return True if _compute_digest(token) in self._running_at_crash else None

    def add(self, token: TaskToken) -> int:
        """The mark to end it by; NO_MARK when there is no room: then its death is not counted."""
        if not (self._free or self._create_once()):
            return NO_SLOT
        mark = self._free.pop()
        memory = self._memory
        memory[mark + 1 : mark + 1 + DIGEST_BYTES] = _compute_digest(token)
        memory[mark] = _STARTED
        return mark

    def remove(self, slot: int) -> None:
        self._memory[slot] = _FREE
        self._free.append(slot)

    def mark_clean_shutdown(self) -> None:
        if self._memory is not _NO_MEMORY:
            self._memory[CLEAN_SHUTDOWN_OFFSET] = 1

    def close(self) -> None:
        """Leaves nothing behind: nothing runs any more, and nobody has died."""
        memory, self._memory = self._memory, _NO_MEMORY
        self._free.clear()
        self._can_create = False
        if isinstance(memory, bytearray):
            return
        memory[CLEAN_SHUTDOWN_OFFSET:] = bytes(FILE_BYTES - CLEAN_SHUTDOWN_OFFSET)
        memory.close()
        with suppress(OSError):  # an empty one that stays is read as empty
            self._path.unlink(missing_ok=True)

    def _create_once(self) -> bool:
        """False when all slots are taken, or when no file can be made; that is tried once."""
        if self._memory is _NO_MEMORY and self._can_create:
            self._can_create = False
            if (made := _map_new(self._path)) is not None:
                self._memory = made
                self._free.extend(reversed(SLOT_OFFSETS))
        return bool(self._free)

    def _read(self, memory: mmap.mmap) -> None:
        self._was_clean_shutdown = bool(memory[CLEAN_SHUTDOWN_OFFSET])
        memory[CLEAN_SHUTDOWN_OFFSET] = 0
        self._running_at_crash.update(
            memory[mark + 1 : mark + 1 + DIGEST_BYTES]
            for mark in SLOT_OFFSETS
            if memory[mark] != _FREE
        )
        self._free.extend(reversed(SLOT_OFFSETS))


def _compute_digest(token: TaskToken) -> bytes:
    return blake2b(_encode(token), digest_size=DIGEST_BYTES).digest()


def _map_existing(path: Path) -> mmap.mmap | None:
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


def _map_new(path: Path) -> mmap.mmap | None:
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
