"""Records running attempts in a memory-mapped file that survives a crash of the process.

An attempt is in the file from its start until its report is accepted. The next owner of the
partition reads which attempts were running when the previous owner died. A write is a copy in
memory, without a system call or fsync. The file therefore survives the death of the process, but
not of the machine. The death of the machine need not be covered, because a task can kill its
process but hardly the machine. One start and one end take 1.0 µs together.

Each partition has one file, which is created with its first attempt. The lock of the partition also
protects the file. A slot holds the digest of a task token, including its nonce. A partly written
digest, or a digest from an earlier incarnation, matches no attempt in flight and is ignored.
"""

import mmap
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from runnel.backends.local.task_board import NO_SLOT
from runnel.core.ids import TaskToken
from runnel.ports.store import LossKind

# The last character is the format version: a file with another version is not read.
MAGIC = b"runnel running 3"
# The offset of the byte after the magic. The byte is not zero once the process was asked to stop.
CLEAN_SHUTDOWN_OFFSET = len(MAGIC)
DIGEST_BYTES = 16
SLOT_BYTES = 32
SLOTS = 2_047
FILE_BYTES = SLOT_BYTES * (1 + SLOTS)
# A slot is identified by its offset. The header occupies the place of the first slot.
SLOT_OFFSETS = range(SLOT_BYTES, FILE_BYTES, SLOT_BYTES)

# The value of the first byte of a used slot. This byte is written after the digest that follows it.
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
        self._has_old_slots = False
        if (existing := _map_existing(path)) is not None:
            self._memory = existing
            self._read(existing)

    def find_loss(self, token: TaskToken) -> LossKind | None:
        """Returns how the attempt was lost when the previous owner of the partition died.

        Returns NOT_STARTED for every attempt if that owner was asked to stop, because then no
        attempt killed it. Returns None if the file does not list the attempt.
        """
        if self._was_clean_shutdown:
            return LossKind.NOT_STARTED
        if _compute_digest(token) not in self._running_at_crash:
            return None
        return LossKind.ALONE if len(self._running_at_crash) == 1 else LossKind.TOGETHER

    def add(self, token: TaskToken) -> int:
        """Records a running attempt and returns its slot.

        Returns NO_SLOT if there is no free slot. A crash is then not counted against this attempt.
        """
        if not (self._free or self._create_once()):
            return NO_SLOT
        slot = self._free.pop()
        memory = self._memory
        if self._has_old_slots:
            # A second crash must not count the tasks of the first crash as company.
            self._has_old_slots = False
            memory[SLOT_BYTES:] = bytes(FILE_BYTES - SLOT_BYTES)
        memory[slot + 1 : slot + 1 + DIGEST_BYTES] = _compute_digest(token)
        memory[slot] = _STARTED
        return slot

    def remove(self, slot: int) -> None:
        self._memory[slot] = _FREE
        self._free.append(slot)

    def mark_clean_shutdown(self) -> None:
        if self._memory is not _NO_MEMORY:
            self._memory[CLEAN_SHUTDOWN_OFFSET] = 1

    def close(self) -> None:
        """Clears and removes the file, so that the next owner does not read a crash."""
        memory, self._memory = self._memory, _NO_MEMORY
        self._free.clear()
        self._can_create = False
        if isinstance(memory, bytearray):
            return
        memory[CLEAN_SHUTDOWN_OFFSET:] = bytes(FILE_BYTES - CLEAN_SHUTDOWN_OFFSET)
        memory.close()
        with suppress(OSError):  # a cleared file that remains is read as empty
            self._path.unlink(missing_ok=True)

    def _create_once(self) -> bool:
        """Returns True if a slot is free. Creates the file at the first call.

        Returns False if all slots are used or the file can't be created. Creation is tried only
        once.
        """
        if self._memory is _NO_MEMORY and self._can_create:
            self._can_create = False
            if (created := _map_new(self._path)) is not None:
                self._memory = created
                self._free.extend(reversed(SLOT_OFFSETS))
        return bool(self._free)

    def _read(self, memory: mmap.mmap) -> None:
        self._was_clean_shutdown = bool(memory[CLEAN_SHUTDOWN_OFFSET])
        memory[CLEAN_SHUTDOWN_OFFSET] = 0
        self._running_at_crash.update(
            memory[slot + 1 : slot + 1 + DIGEST_BYTES]
            for slot in SLOT_OFFSETS
            if memory[slot] != _FREE
        )
        self._has_old_slots = bool(self._running_at_crash)
        self._free.extend(reversed(SLOT_OFFSETS))


def _compute_digest(token: TaskToken) -> bytes:
    return blake2b(_encode(token), digest_size=DIGEST_BYTES).digest()


def _map_existing(path: Path) -> mmap.mmap | None:
    """Maps the file; returns None if it can't be read. Removes a file of another format."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(handle).st_size == FILE_BYTES and os.pread(handle, len(MAGIC), 0) == MAGIC:
            return mmap.mmap(handle, FILE_BYTES)
    except OSError:
        return None  # the file system does not support mapped files
    finally:
        os.close(handle)
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return None


def _map_new(path: Path) -> mmap.mmap | None:
    """Creates and maps the file; returns None if that fails.

    Without the file, tasks run without being recorded, as if all slots were used. The function
    writes the whole file instead of only setting its size. A write into a hole of a mapped file
    would kill the process when the disk is full.
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
