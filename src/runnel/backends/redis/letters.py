"""Dead letters, a stream for each queue, of which each keeps so many at most."""

from collections.abc import AsyncIterator, Sequence

from runnel.backends.letters import is_wanted, page_of
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines
from runnel.backends.redis.values import decode_letter, encode
from runnel.core.effects import DeadLetter
from runnel.ports.archive import LetterFilter

PAGE = 500


class RedisLetters:
    """Looks at every letter of the queues that are asked for: there is no index of them."""

    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def list(self, wanted: LetterFilter) -> Sequence[DeadLetter]:
        """Streams are in the order of commits, which is not quite that of rejection."""
        found: list[DeadLetter] = []
        for queue in await self._queues(wanted.queue):
            async for _, letter, _body in self._all(queue):
                found.append(letter)
        return page_of(found, wanted)

    async def count(self, wanted: LetterFilter) -> int:
        found = 0
        for queue in await self._queues(wanted.queue):
            async for _, letter, _body in self._all(queue):
                found += is_wanted(letter, wanted)
        return found

    async def delete(self, letters: Sequence[DeadLetter]) -> int:
        deleted = 0
        for queue in sorted({letter.queue for letter in letters}):
            bodies = {encode(letter) for letter in letters if letter.queue == queue}
            key = queue.encode()
            ids = [entry_id async for entry_id, _, body in self._all(key) if body in bodies]
            for first in range(0, len(ids), PAGE):
                some = ids[first : first + PAGE]
                deleted += await self._lines.call("XDEL", self._stream(key), *some)
        return deleted

    async def _queues(self, only: str | None) -> Sequence[bytes]:
        if only is not None:
            return [only.encode()]
        return sorted(await self._lines.call("SMEMBERS", self._keys.letter_queues))

    async def _all(self, queue: bytes) -> AsyncIterator[tuple[bytes, DeadLetter, bytes]]:
        """The entry's id, the letter, and its bytes."""
        last = b"+"
        while True:
            page = await self._lines.call(
                "XREVRANGE", self._stream(queue), last, "-", "COUNT", PAGE
            )
            for entry_id, fields in page:
                yield entry_id, decode_letter(fields[-1]), fields[-1]
            if len(page) < PAGE:
                return
            last = b"(" + page[-1][0]

    def _stream(self, queue: bytes) -> bytes:
        return self._keys.letters.encode() + queue
