"""Which orchestrators live: a hash of the last sign that each has given."""

from collections.abc import Sequence

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.leases import OTHER_ARCHIVE_WORDS
from runnel.backends.redis.lines import Lines
from runnel.errors import StoreError
from runnel.ports.registry import Attendance


class RedisAttendance:
    """`incarnation` names the archive that they write for; who writes for none, or another, is not
    one of them: the others would leave partitions to it.
    """

    def __init__(self, lines: Lines, keys: Keys, *, incarnation: str) -> None:
        self._lines = lines
        self._keys = keys
        self._incarnation = incarnation

    async def attend(self, owner: str) -> Sequence[Attendance]:
        keys = [self._keys.orchestrators, self._keys.signs, self._keys.layout]
        found = await self._lines.run("attend", keys, [owner, self._incarnation])
        if not found:
            raise StoreError(f"Redis: {OTHER_ARCHIVE_WORDS}")
        return [
            Attendance(owner=name.decode(), counter=int(counter))
            for name, counter in zip(found[::2], found[1::2], strict=True)
        ]

    async def depart(self, owner: str, counter: int | None) -> None:
        args = [owner, "" if counter is None else counter]
        await self._lines.run("depart", [self._keys.orchestrators], args)
