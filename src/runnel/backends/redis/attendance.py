"""Which orchestrators live: a hash of the last sign that each has given."""

from collections.abc import Sequence

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines
from runnel.ports.registry import Attendance


class RedisAttendance:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def attend(self, owner: str) -> Sequence[Attendance]:
        keys = [self._keys.orchestrators, self._keys.signs]
        found = await self._lines.run("attend", keys, [owner])
        return [
            Attendance(owner=name.decode(), counter=int(counter))
            for name, counter in zip(found[::2], found[1::2], strict=True)
        ]

    async def depart(self, owner: str, counter: int | None) -> None:
        args = [owner, "" if counter is None else counter]
        await self._lines.run("depart", [self._keys.orchestrators], args)
