"""What becomes of the tasks of a worker that is gone, or that was never there."""

from runnel.backends.local.board import DEAD_LISTED_MAX
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.line import Arg
from runnel.backends.redis.lines import Lines
from runnel.backends.redis.values import failed_around, lost_around
from runnel.core.retry import ErrorInfo
from runnel.ports.registry import WorkerRecord


class Losses:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def lose(self, worker: str, reason: str, *, judged: WorkerRecord | None = None) -> int:
        """With `judged`, none when the worker has given another sign of life than that one.

        Without, it has said goodbye: then none of its tasks counts as started.
        """
        keys = self._keys
        count: int = await self._lines.run(
            "lose",
            [
                keys.workers,
                keys.held + worker,
                keys.out,
                keys.dropped + worker,
                keys.about,
                keys.dead,
                keys.drained,
                keys.waiting,
                keys.inbox,
            ],
            [
                worker,
                "" if judged is None else judged.counter,
                *lost_around(reason, is_crash=judged is not None and judged.is_crash),
                DEAD_LISTED_MAX,
            ],
        )
        return count

    async def reject(self, queue: str, error: ErrorInfo, *, waiting_s: float, limit: int) -> int:
        """Tasks that nobody has claimed for so long fail."""
        keys = [self._keys.tasks + queue, self._keys.out, self._keys.inbox]
        args: list[Arg] = [int(waiting_s * 1_000), limit, *failed_around(error)]
        count: int = await self._lines.run("reject", keys, args)
        return count
