"""What becomes of the tasks of a worker that is gone."""

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines
from runnel.backends.redis.values import lost_around


class Losses:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def lose(self, worker: str, reason: str, *, judged: int | None = None) -> int:
        """With `judged`, none when the worker has given another sign of life than that one.

        Without, it has said goodbye: then none of its tasks counts as started.
        """
        keys = self._keys
        count: int = await self._lines.run(
            "lose",
            [keys.workers, keys.held + worker, keys.out, keys.dropped + worker, keys.inbox],
            [
                worker,
                "" if judged is None else judged,
                *lost_around(reason, is_crash=judged is not None),
            ],
        )
        return count
