"""Connections to the server: short calls share one, whatever takes longer has one of its own.

Nothing is ever sent twice, and each connection knows which life of the server it leads to.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import TypeAlias

import hiredis
import msgspec

from runnel.backends.redis.connection import Arg, Line, LineError, Reply, pack, parse_address
from runnel.errors import StoreError
from runnel.ports.clock import Clock

# The Lua scripts by name: read once, called by their hash.

PRELUDE = "prelude"
# A part begins with its comment and ends before an empty line.
_PARTS = re.compile(r"(?:.+\n)+")
_NAMES = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    """`sha` is what EVALSHA takes: the server keeps a script until it restarts or is flushed."""

    name: str
    text: str
    sha: str


def load_scripts(folder: Path) -> dict[str, Script]:
    prelude = (folder / f"{PRELUDE}.lua").read_text(encoding="utf-8")
    found: dict[str, Script] = {}
    for path in sorted(folder.glob("*.lua")):
        if path.stem != PRELUDE:
            body = path.read_text(encoding="utf-8")
            found[path.stem] = script_of(path.stem, used_of(prelude, body) + body)
    return found


def used_of(prelude: str, body: str) -> str:
    """The parts of the prelude that a script uses, and those that they use.

    The server makes every function of a script anew in each call: all of them took 3.2 µs of the
    5.4 that an otherwise empty script takes.
    """
    text = ""
    for part in reversed(_PARTS.findall(prelude)):
        name = _NAMES.search(part)
        if name is not None and re.search(rf"\b{name[1]}\b", text + body):
            text = part + text
    return text


def script_of(name: str, text: str) -> Script:
    """Redis names a script by this hash; nothing is protected by it."""
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha)


SCRIPTS = load_scripts(Path(__file__).with_name("scripts"))


# Calls under way at a time: the server does one after the other anyway.
CALLS_MAX = 16
BLOCK_S = 30.0
# A wait that the server should have ended by now is ended here.
LATE_S = 0.05
# A longer command has a connection of its own: those behind it would have to wait, and what the
# server has not read yet would pile up here. So the shared one holds at most CALLS_MAX times this.
SHARED_BYTES_MAX = 65_536
_NO_SCRIPT = "NOSCRIPT "
# Within a script, older servers put other words before it.
_READ_ONLY = "READONLY "

Failure: TypeAlias = LineError | hiredis.ReplyError
_FAILURES = (LineError, hiredis.ReplyError)


class OtherRunError(Exception):
    """The server is not the one it was: it has restarted, or is another one."""


class Lines:
    """Raises StoreError for whatever goes wrong on the way."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        call_s: float,
        calls_max: int = CALLS_MAX,
        block_s: float = BLOCK_S,
    ) -> None:
        self._clock = clock
        self._call_s = call_s
        self.block_s = block_s
        """How long one wait lasts at most."""
        self._address = parse_address(url)
        self._shared: Line | None = None
        self._sharing: asyncio.Future[Failure | None] | None = None
        self._idle: list[Line] = []
        self._open: set[Line] = set()
        self._is_closed = False
        self._room = asyncio.Semaphore(calls_max)

    @property
    def address(self) -> str:
        """Where the server is, without a user or a password."""
        return str(self._address)

    async def run_id(self) -> str:
        """Of the server as it is now."""
        try:
            return (await self._share()).run_id
        except _FAILURES as error:
            raise self._failed("INFO", error) from error

    async def call(self, *args: Arg, under: str | None = None, is_large: bool = False) -> Reply:
        """With `under` it raises OtherRunError, before it sends anything, on another life.

        `is_large` is for an answer that may be long: nobody else has to wait behind it.
        """
        packed = pack(args)
        is_large = is_large or len(packed) > SHARED_BYTES_MAX
        return await self._ask(str(args[0]), packed, under=under, is_large=is_large)

    async def run(
        self,
        name: str,
        keys: Sequence[str],
        args: Sequence[Arg],
        *,
        under: str | None = None,
        is_large: bool = False,
    ) -> Reply:
        """Runs a script; one that the server does not know has not run, so it is sent again."""
        script = SCRIPTS[name]
        packed = pack(("EVALSHA", script.sha, len(keys), *keys, *args))
        is_large = is_large or len(packed) > SHARED_BYTES_MAX
        return await self._ask(name, packed, under=under, is_large=is_large, script=script)

    async def wait(self, *args: Arg, wait_s: float, under: str | None = None) -> Reply:
        """A command that blocks for up to `wait_s`, and at most `block_s`: then it gives None.

        `BLOCK` and the milliseconds are put behind the first argument.
        """
        wait_s = min(wait_s, self.block_s)
        packed = pack((args[0], "BLOCK", max(1, ceil(wait_s * 1_000)), *args[1:]))
        try:
            async with self._clock.timeout(wait_s + LATE_S):
                reply = await self._ask_alone(packed, under=under, wait_s=wait_s)
        except TimeoutError:
            return None
        except _FAILURES as error:
            raise self._failed(str(args[0]), error) from error
        return reply

    async def listen(
        self, channel: str, told: Callable[[bytes, bytes], None], *, line: Line | None
    ) -> Line:
        """The connection on which `told` hears of the channel: `line`, as long as it is current."""
        made: Line | None = None
        try:
            if line is None or not self.is_current(line):
                line = made = await self._connect()
                line.told = told
            _checked(await line.ask(pack(("SUBSCRIBE", channel))))
            made = None
        except _FAILURES as error:
            raise self._failed("SUBSCRIBE", error) from error
        finally:
            if made is not None:
                made.close()  # nobody would know of it, and it might hear what is handed over
        return line

    def is_current(self, line: Line) -> bool:
        """Whether it is open, and leads to the same server as the calls do, as far as is known."""
        return line.is_open and (self._shared is None or self._shared.run_id == line.run_id)

    async def close(self) -> None:
        """Whatever is under way fails, and whatever comes then."""
        self._is_closed = True
        lines = [*self._open]
        _hang_up(lines)
        for line in lines:
            await line.lost

    async def _ask(
        self,
        what: str,
        packed: bytes,
        *,
        under: str | None,
        is_large: bool,
        script: Script | None = None,
    ) -> Reply:
        ask = self._ask_with_room if is_large else self._ask_shared
        try:
            try:
                return await ask(packed, under=under)
            except hiredis.ReplyError as error:
                if script is None or not str(error).startswith(_NO_SCRIPT):
                    raise
            await self._ask_shared(pack(("SCRIPT", "LOAD", script.text)), under=under)
            return await ask(packed, under=under)
        except _FAILURES as error:
            raise self._failed(what, error) from error

    async def _ask_shared(self, packed: bytes, *, under: str | None) -> Reply:
        """Its place is free again when the answer is there, even if nobody waits for it by then."""
        await self._room.acquire()
        is_asked = False
        try:
            line = self._shared
            if line is None or not line.is_open:
                line = await self._share()
            if under is not None and line.run_id != under:
                raise OtherRunError
            answer = line.ask(packed)
            is_asked = True
        finally:
            if not is_asked:
                self._room.release()
        return _checked(await answer)

    async def _ask_with_room(self, packed: bytes, *, under: str | None) -> Reply:
        async with self._room:
            return await self._ask_alone(packed, under=under)

    async def _ask_alone(self, packed: bytes, *, under: str | None, wait_s: float = 0.0) -> Reply:
        """Giving it up closes the connection: the server may go on with it for long."""
        line = await self._take(under)
        is_answered = False
        try:
            reply = await line.ask(packed, wait_s=wait_s)
            is_answered = True
        finally:
            if is_answered:
                self._idle.append(line)
            else:
                line.close()
        return _checked(reply)

    async def _share(self) -> Line:
        """Who comes while somebody else connects has the same luck."""
        while self._shared is None or not self._shared.is_open:
            if self._sharing is None:
                return await self._connect_shared()
            failure = await asyncio.shield(self._sharing)
            if failure is not None:
                raise failure
        return self._shared

    async def _connect_shared(self) -> Line:
        sharing = self._sharing = asyncio.get_running_loop().create_future()
        failure: Failure | None = None
        try:
            line = self._shared = await self._connect()
        except _FAILURES as error:
            failure = error
            raise
        finally:
            self._sharing = None
            sharing.set_result(failure)
        line.answered = self._room.release
        return line

    async def _take(self, under: str | None) -> Line:
        """One that lies idle may lead to a former life; a new one tells which is the current."""
        while self._idle:
            line = self._idle.pop()
            if line.is_open and under in (None, line.run_id):
                return line
            line.close()
        line = await self._connect()
        if under is not None and line.run_id != under:
            self._idle.append(line)
            raise OtherRunError
        return line

    async def _connect(self) -> Line:
        line = Line(self._call_s)
        await self._address.connect(line, within_s=self._call_s)
        if self._is_closed:
            line.close()
            raise LineError("all connections were closed here")
        self._open.add(line)
        line.lost.add_done_callback(lambda _: self._open.discard(line))
        return line

    def _failed(self, what: str, error: Failure) -> StoreError:
        """The other connections have most likely the same fate: the next call makes a new one.

        A server that may only be read was replaced by another, to which new ones may lead.
        """
        if isinstance(error, LineError):
            idle, self._idle = self._idle, []
            _hang_up(idle)
        elif _READ_ONLY in str(error):
            _hang_up([*self._open])
        return StoreError(f"Redis: '{what}' failed, and whether it was done is not known: {error}")


def _hang_up(lines: Iterable[Line]) -> None:
    for line in lines:
        line.close()


def _checked(reply: Reply) -> Reply:
    if isinstance(reply, hiredis.ReplyError):
        raise reply
    return reply
