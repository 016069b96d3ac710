"""Records running attempts in a memory-mapped file that survives a crash of the process.

An attempt is in the file from its start until its report is accepted. The next owner of the
partition reads which attempts were running when the previous owner died. A write is a copy in
memory, without a system call or fsync. The file therefore survives the death of the process, but
not of the machine. The death of the machine need not be covered, because a task can kill its
process but hardly the machine. One start and one end take 1.0 µs together.

Each partition has one file, which is created with its first attempt. The lock of the partition also
protects the file. A slot holds the digest of a task token, including its nonce. A partly written
digest, or a digest from an earlier incarnation, matches no attempt in flight and is ignored.

The header names the process that wrote the file. A process that owned several partitions leaves
several files with the same name. Their tasks were running together.
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
# The offset of the next byte. It is not zero if the dead process also ran tasks of a partition that
# was recovered before this one.
COMPANY_OFFSET = CLEAN_SHUTDOWN_OFFSET + 1
PROCESS_ID_OFFSET = COMPANY_OFFSET + 1
PROCESS_ID_BYTES = 8
# In a file of an earlier version.
NO_PROCESS_ID = bytes(PROCESS_ID_BYTES)
DIGEST_BYTES = 16
SLOT_BYTES = 32
SLOTS = 2_047
FILE_BYTES = SLOT_BYTES * (1 + SLOTS)
# A slot is identified by its offset. The header occupies the place of the first slot.
SLOT_OFFSETS = range(SLOT_BYTES, FILE_BYTES, SLOT_BYTES)

# The value of the first byte of a used slot. This byte is written after the digest that follows it.
_FREE, _STARTED, _ISOLATED = 0, 1, 2

_NO_MEMORY = bytearray()

_encode = msgspec.json.Encoder().encode


class RunningTasksFile:
    """The file of one partition. `process_id` is a random name of this process."""

    def __init__(self, path: Path, *, process_id: bytes = NO_PROCESS_ID) -> None:
        self._path = path
        self._process_id = process_id
        self._running_at_crash: set[bytes] = set()
        self._isolated_at_crash: set[bytes] = set()
        self._had_company = False
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
        attempt killed it. An attempt in a child process did not kill it either. Returns None if the
        file does not list the attempt.
        """
        digest = _compute_digest(token)
        if self._was_clean_shutdown or digest in self._isolated_at_crash:
            return LossKind.NOT_STARTED
        if digest not in self._running_at_crash:
            return None
        is_alone = len(self._running_at_crash) == 1 and not self._had_company
        return LossKind.ALONE if is_alone else LossKind.TOGETHER

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
            self._write_process_id()
        memory[slot + 1 : slot + 1 + DIGEST_BYTES] = _compute_digest(token)
        memory[slot] = _STARTED
        return slot

    def isolate(self, slot: int) -> None:
        self._memory[slot] = _ISOLATED

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
                self._write_process_id()
                self._free.extend(reversed(SLOT_OFFSETS))
        return bool(self._free)

    def _read(self, memory: mmap.mmap) -> None:
        self._was_clean_shutdown = bool(memory[CLEAN_SHUTDOWN_OFFSET])
        memory[CLEAN_SHUTDOWN_OFFSET] = 0
        for slot in SLOT_OFFSETS:
            if memory[slot] != _FREE:
                is_isolated = memory[slot] == _ISOLATED
                digests = self._isolated_at_crash if is_isolated else self._running_at_crash
                digests.add(memory[slot + 1 : slot + 1 + DIGEST_BYTES])
        self._has_old_slots = True
        self._free.extend(reversed(SLOT_OFFSETS))
        former_id = memory[PROCESS_ID_OFFSET : PROCESS_ID_OFFSET + PROCESS_ID_BYTES]
        if self._running_at_crash and former_id != NO_PROCESS_ID:
            self._had_company = self._find_company(former_id)
        # The owner of another partition may have written this byte meanwhile.
        self._had_company = self._had_company or bool(memory[COMPANY_OFFSET])

    def _find_company(self, former_id: bytes) -> bool:
        """Returns True if the dead process also ran tasks of other partitions.

        Marks the files of these partitions, because this process may clear its own file before
        another process reads them.
        """
        has_company = False
        for path in self._path.parent.glob(f"*{self._path.suffix}"):
            if path == self._path or (memory := _map_existing(path, keeps_others=True)) is None:
                continue
            if memory[PROCESS_ID_OFFSET : PROCESS_ID_OFFSET + PROCESS_ID_BYTES] == former_id:
                memory[COMPANY_OFFSET] = 1
                has_company = has_company or any(memory[slot] == _STARTED for slot in SLOT_OFFSETS)
            memory.close()
        return has_company

    def _write_process_id(self) -> None:
        self._memory[COMPANY_OFFSET] = 0
        self._memory[PROCESS_ID_OFFSET : PROCESS_ID_OFFSET + PROCESS_ID_BYTES] = self._process_id


def _compute_digest(token: TaskToken) -> bytes:
    return blake2b(_encode(token), digest_size=DIGEST_BYTES).digest()


def _map_existing(path: Path, *, keeps_others: bool = False) -> mmap.mmap | None:
    """Maps the file; returns None if it can't be read.

    Removes a file of another format, unless `keeps_others`: another process may be creating it.
    """
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
    if not keeps_others:
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
