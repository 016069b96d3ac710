"""One kernel lock per partition: held by a living process, freed by the kernel when it ends."""

import fcntl
import os
from pathlib import Path

from runnel.errors import StoreError


class PartitionLocks:
    """Locks belong to an open file: two backends exclude each other within one process too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}

    def take(self, partition: int) -> bool:
        """False when somebody else has it; True also when this backend has it already."""
        if partition in self._held:
            return True
        handle = self._open(partition)
        if not _lock(handle, fcntl.LOCK_EX):
            os.close(handle)
            return False
        self._held[partition] = handle
        return True

    def holds(self, partition: int) -> bool:
        return partition in self._held

    def is_free(self, partition: int) -> bool:
        """Whether nobody at all has it, this backend included.

        The test takes a shared lock for a moment: whoever wants the partition in that moment is
        told that it is held, and comes back.
        """
        if partition in self._held:
            return False
        handle = self._open(partition)
        try:
            return _lock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def free(self, partition: int) -> None:
        handle = self._held.pop(partition, None)
        if handle is not None:
            os.close(handle)

    def free_all(self) -> None:
        for partition in list(self._held):
            self.free(partition)

    def _open(self, partition: int) -> int:
        path = self._folder / f"p{partition}.lock"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"the lock file {path} can't be opened: {error}") from error


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
