"""An archive belongs to one Redis: another one that names it is refused, unless told to take it."""

from collections.abc import Mapping

from runnel.backends.archived.unrecorded import Unrecorded
from runnel.backends.postgres.database import Database
from runnel.backends.postgres.meta import (
    Meta,
    RedisSide,
    add_place,
    get_redis_side,
    open_meta,
    put_redis_side,
)
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.layout import (
    PARTITIONS_DEFAULT,
    Layout,
    adopt_layout,
    find_identity,
    find_layout,
)
from runnel.backends.redis.lines import Lines
from runnel.errors import InputError, StoreError
from runnel.ports.clock import Ids

# How often what comes in meanwhile is recorded, too.
LOOKS_MAX = 10
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def place_of(address: str, prefix: str, host: str) -> str:
    """How a Redis is named here; `host` is this machine, for an address that only it can use."""
    is_local = address.startswith("/") or address.rpartition(":")[0] in LOOPBACK
    machine = f" on {host}" if is_local and host else ""
    return f"{address}{machine} with the prefix {prefix}"


class Pairing:
    """`place` is where this process finds its Redis, as `place_of` says it.

    Redis has a name of its own, and the archive knows it. A Redis without one was wiped, or is
    another one: it is the same if it is where the archive's was found before.
    """

    def __init__(
        self, lines: Lines, keys: Keys, database: Database, *, place: str, ids: Ids
    ) -> None:
        self._lines = lines
        self._keys = keys
        self._database = database
        self._place = place
        self._ids = ids
        self._unrecorded = Unrecorded(lines, keys, database)

    async def open(self, partitions: int | None, *, takes_archive: bool) -> Layout:
        """Raises InputError for two that do not belong together, or are divided otherwise.

        While PostgreSQL can't be reached, a Redis that has an archive is taken at its word.
        """
        try:
            meta = await self._open_meta(partitions)
        except StoreError:
            known = await find_layout(self._lines, self._keys)
            if known is None or partitions not in (None, known.partitions):
                raise
            return known
        layout = Layout(meta.partitions, meta.incarnation)
        await self.confirm(layout, takes_archive=takes_archive)
        return layout

    async def confirm(self, layout: Layout, *, takes_archive: bool = False) -> None:
        """That this Redis is the archive's, which an empty one becomes; raises InputError."""
        incarnation, found = await find_identity(self._lines, self._keys)
        side = await get_redis_side(self._database)
        is_other = False
        if incarnation in {None, layout.incarnation}:
            is_other = side.is_other(found, self._place)
            if is_other and not takes_archive:
                raise _refused(side, self._place, self._database.schema)
        wanted = self._ids.nonce() + self._ids.nonce()
        if not is_other:
            wanted = found or side.id or wanted
        over = (found or "") if is_other else None
        identity = await self._adopt(layout, identity=wanted, over=over)
        await self._note(side, identity)

    async def _adopt(self, layout: Layout, *, identity: str, over: str | None) -> str:
        """What waits in a Redis that had no archive so far is recorded before.

        Not of one that is refused: the archive would have it run a second time elsewhere.
        """
        recorded: Mapping[int, str] = {}
        for _ in range(LOOKS_MAX):
            name = await adopt_layout(
                self._lines, self._keys, layout, identity=identity, over=over, recorded=recorded
            )
            if name is not None:
                return name
            recorded = await self._unrecorded.record(layout)
        raise StoreError("Redis: somebody submits to it without naming PostgreSQL: end that first")

    async def _note(self, side: RedisSide, identity: str) -> None:
        """In the archive, last: a Redis that can't be had leaves no trace there."""
        if side.id == identity:
            if self._place not in side.places:
                await add_place(self._database, self._place)
            return
        await put_redis_side(self._database, RedisSide(identity, (self._place,)), over=side.id)
        now = await get_redis_side(self._database)
        if now.id != identity:
            raise _refused(now, self._place, self._database.schema)

    async def _open_meta(self, partitions: int | None) -> Meta:
        return await open_meta(
            self._database,
            incarnation=self._ids.nonce() + self._ids.nonce(),
            partitions=partitions or PARTITIONS_DEFAULT,
            is_fixed=partitions is not None,
        )


def _refused(side: RedisSide, place: str, schema: str) -> InputError:
    known = side.places[-1] if side.places else "another address"
    return InputError(
        f"the archive in the schema '{schema}' belongs to the Redis at {known}, and not to the one "
        f"at {place}: name that Redis, or another POSTGRES_SCHEMA; if it is gone for good, start "
        "'runnel orchestrator --take-archive' once"
    )
