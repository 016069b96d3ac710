"""The temporary folder of a server."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal, TypeAlias

# "memory": a memory file system where there is one with room, else as "disk". A new PostgreSQL is
# a thousand small files: 70 ms in memory, 150 ms to 2 s on a disk that others use too (2026-11).
# A kill -9 loses nothing in either; what a power cut or an fsync costs, only "disk" can tell.
Storage: TypeAlias = Literal["memory", "disk"]

MEMORY = Path("/dev/shm")  # noqa: S108  # the folder is made by mkdtemp, with a name nobody can guess
ROOM_BYTES = 512 * 1024 * 1024  # a container's own default is 64 MB, and PostgreSQL starts with 39


def make_folder(prefix: str, *, storage: Storage, user: str | None) -> Path:
    """A new folder that only this user, or the one it is made for, may enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"runnel-{prefix}-", dir=_parent(storage)))
    if user is not None:
        shutil.chown(folder, user)
    return folder


def _parent(storage: Storage) -> Path | None:
    if storage == "memory" and os.access(MEMORY, os.W_OK | os.X_OK):
        room = os.statvfs(MEMORY)
        if room.f_bavail * room.f_frsize >= ROOM_BYTES:
            return MEMORY
    return None
