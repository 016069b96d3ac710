"""Connections to a Redis server whose every round trip is a crash point.

Finer than the ports: one call to a port may take several of them.
"""

from collections.abc import Callable, Sequence
from functools import partial

from runnel.backends.redis.backend import CALL_S
from runnel.backends.redis.line import Arg, Line, Reply
from runnel.backends.redis.lines import Lines
from runnel.ports.clock import Clock
from runnel.testing.crash_points.moments import Moments


class CrashingLines(Lines):
    def __init__(self, url: str, clock: Clock, moments: Moments) -> None:
        super().__init__(url, clock, call_s=CALL_S)
        self._moments = moments

    async def call(self, *args: Arg, under: str | None = None, is_large: bool = False) -> Reply:
        call = partial(super().call, *args, under=under, is_large=is_large)
        return await self._moments.around(_name(args), call)

    async def run(
        self,
        name: str,
        keys: Sequence[str],
        args: Sequence[Arg],
        *,
        under: str | None = None,
        is_large: bool = False,
    ) -> Reply:
        run = partial(super().run, name, keys, args, under=under, is_large=is_large)
        return await self._moments.around(name, run)

    async def wait(self, *args: Arg, wait_s: float, under: str | None = None) -> Reply:
        wait = partial(super().wait, *args, wait_s=wait_s, under=under)
        return await self._moments.around(f"{_name(args)}, waiting", wait)

    async def listen(
        self, channel: str, told: Callable[[bytes, bytes], None], *, line: Line | None
    ) -> Line:
        listen = partial(super().listen, channel, told, line=line)
        return await self._moments.around("SUBSCRIBE", listen)


def _name(args: Sequence[Arg]) -> str:
    """The command, and what kind of key it is about: `XREAD inbox`."""
    keys = [str(arg).split(":")[2] for arg in args if str(arg).count(":") > 1]
    return " ".join([str(args[0]), *keys[:1]])
