"""Blob stores: in memory, and as files that are written under a temporary name and then renamed."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from runnel.errors import NotFoundError, StoreError

KEY_LENGTH_BYTES = 4


class MemoryBlobs:
    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        self._blobs[key] = data

    def peek(self, key: str) -> bytes | None:
        return self._blobs.get(key)

    async def get(self, key: str) -> bytes:
        try:
            return self._blobs[key]
        except KeyError:
            raise NotFoundError("blob", key) from None

    async def read_parts(
        self, keys: Sequence[str], *, start: int, size: int
    ) -> Sequence[bytes | None]:
        blobs = map(self._blobs.get, keys)
        return [None if blob is None else blob[start : start + size] for blob in blobs]

    async def delete(self, prefix: str) -> int:
        keys = [key for key in self._blobs if key.startswith(prefix)]
        for key in keys:
            del self._blobs[key]
        return len(keys)


class FileBlobs:
    """Stores each blob in one file, which holds the length of the key, the key and the data.

    File names are hashes, because users choose parts of the keys. A key can therefore never point
    outside the folder or exceed the length of a file name. It also can't collide with a key that
    differs only by case.

    A file name begins with the hash of the key's group, which is the part of the key before its
    first slash. Deleting the blobs of an execution therefore reads no other blobs.
    """

    def __init__(self, folder: Path, *, survives_power_loss: bool = True) -> None:
        self._folder = folder
        self._survives_power_loss = survives_power_loss

    async def put(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, key, data)

    async def get(self, key: str) -> bytes:
        return await asyncio.to_thread(self._get, key)

    async def read_parts(
        self, keys: Sequence[str], *, start: int, size: int
    ) -> Sequence[bytes | None]:
        return await asyncio.to_thread(self._read_parts, keys, start, size)

    async def delete(self, prefix: str) -> int:
        return await asyncio.to_thread(self._delete, prefix)

    async def delete_groups(self, groups: Collection[str]) -> int:
        """Deletes all blobs of the groups; reads a folder once for all of them."""
        return await asyncio.to_thread(self._delete_groups, groups) if groups else 0

    async def list_written_before(self, cutoff: float) -> list[str]:
        """Returns the keys of the blobs that were last written before `cutoff`.

        `cutoff` is in seconds since the epoch. Also removes temporary files older than `cutoff`,
        which a process left when it died during a write.
        """
        return await asyncio.to_thread(self._list_written_before, cutoff)

    def _list_written_before(self, cutoff: float) -> list[str]:
        keys: list[str] = []
        for path in self._folder.glob("*/*"):
            with suppress(FileNotFoundError):  # another process deleted the file
                if path.stat().st_mtime >= cutoff:
                    continue
                if path.suffix == ".blob":
                    with path.open("rb") as file:
                        keys.append(_read_key(file))
                else:
                    path.unlink()
        return keys

    def _put(self, key: str, data: bytes) -> None:
        path = self._build_path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write_atomically(path, key.encode(), data)
        except OSError as error:
            raise StoreError(f"the blob '{key}' could not be written to {path}: {error}") from error

    def _write_atomically(self, path: Path, key: bytes, data: bytes) -> None:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=".", suffix=".new", delete=False
        ) as file:
            try:
                file.write(len(key).to_bytes(KEY_LENGTH_BYTES, "big"))
                file.write(key)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        if self._survives_power_loss:
            self._sync_folders(path.parent)

    def _sync_folders(self, folder: Path) -> None:
        """Syncs the folder and its parent, so that the new names survive a power failure."""
        for synced_folder in (folder, self._folder):
            handle = os.open(synced_folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _get(self, key: str) -> bytes:
        path = self._build_path(key)
        try:
            with path.open("rb") as file:
                _read_key(file)
                return file.read()
        except FileNotFoundError:
            raise NotFoundError("blob", key) from None
        except OSError as error:
            raise _unreadable_error(key, path, error) from error

    def _read_parts(self, keys: Sequence[str], start: int, size: int) -> Sequence[bytes | None]:
        return [self._read_part(key, start, size) for key in keys]

    def _read_part(self, key: str, start: int, size: int) -> bytes | None:
        path = self._build_path(key)
        try:
            # Half the time of a file object, of which a view with 100 large values opens 100.
            handle = os.open(path, os.O_RDONLY)
            try:
                return os.pread(handle, size, KEY_LENGTH_BYTES + len(key.encode()) + start)
            finally:
                os.close(handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable_error(key, path, error) from error

    def _delete(self, prefix: str) -> int:
        deleted = 0
        for path in self._list_candidates(prefix):
            with path.open("rb") as file:
                matches = _read_key(file).startswith(prefix)
            if matches:
                path.unlink(missing_ok=True)
                deleted += 1
        return deleted

    def _delete_groups(self, groups: Collection[str]) -> int:
        digests = {_compute_digest(group) for group in groups}
        deleted = 0
        for folder in {self._folder / digest[:2] for digest in digests}:
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.partition("-")[0] in digests:
                        Path(entry.path).unlink(missing_ok=True)
                        deleted += 1
        return deleted

    def _list_candidates(self, prefix: str) -> list[Path]:
        """Lists the files that can hold a key with this prefix.

        A prefix with a slash names one group. A prefix without a slash can match keys of every
        group.
        """
        if "/" not in prefix:
            return list(self._folder.glob("*/*.blob"))
        group = _compute_digest(prefix.partition("/")[0])
        return list((self._folder / group[:2]).glob(f"{group}-*.blob"))

    def _build_path(self, key: str) -> Path:
        group = _compute_digest(key.partition("/")[0])
        return self._folder / group[:2] / f"{group}-{_compute_digest(key)}.blob"


def _unreadable_error(key: str, path: Path, error: OSError) -> StoreError:
    return StoreError(f"the blob '{key}' could not be read from {path}: {error}")


def _compute_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_key(file: BinaryIO) -> str:
    return file.read(int.from_bytes(file.read(KEY_LENGTH_BYTES), "big")).decode()
