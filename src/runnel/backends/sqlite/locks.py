"""One kernel lock per partition: held by a living process, freed by the kernel when it ends."""

import fcntl
import os
import threading
from pathlib import Path
from weakref import WeakSet

from runnel.errors import PartitionUnavailableError


class PartitionLocks:
    """Locks belong to an open file: two backends exclude each other within one process too.

    A forked child shares the open files of its parent, and would keep their locks after the
    parent's death: it closes them before anything else runs in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}
        with _no_fork:
            _all.add(self)

    def take(self, partition: int) -> bool:
        """False when somebody else has it; True also when this backend has it already."""
        if partition in self._held:
            return True
        with _no_fork:
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
        with _no_fork:
            handle = self._open(partition)
            try:
                return _lock(handle, fcntl.LOCK_SH)
            finally:
                os.close(handle)

    def free(self, partition: int) -> None:
        with _no_fork:
            handle = self._held.pop(partition, None)
            if handle is not None:
                os.close(handle)

    def free_all(self) -> None:
        for partition in list(self._held):
            self.free(partition)

    def forget_inherited(self) -> None:
        """In a forked child: closing leaves the lock with the parent, unlocking would not."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def _open(self, partition: int) -> int:
        path = self._folder / f"p{partition}.lock"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PartitionUnavailableError(
                partition, f"its lock file can't be opened: {error}"
            ) from error


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# A lock file is never open in the moment of a fork without being known here: user code forks on
# threads of its own.
_no_fork = threading.RLock()
_all: "WeakSet[PartitionLocks]" = WeakSet()


def _after_fork_in_child() -> None:
    for locks in _all:
        locks.forget_inherited()
    _no_fork.release()


os.register_at_fork(
    before=_no_fork.acquire,
    after_in_parent=_no_fork.release,
    after_in_child=_after_fork_in_child,
)
