"""Checks of PostgreSQL: version, schema, and whether it is the archive of this Redis."""

from collections.abc import Iterator

from runnel.app.doctor import Finding, bad, check_clock, ok, warn
from runnel.app.process_signals import get_host_name
from runnel.app.stores import (
    POSTGRES_REMEDY,
    build_postgres_display_url,
    build_postgres_options,
    build_postgres_url,
)
from runnel.backends.postgres.health import ArchiveFacts, read_archive_facts
from runnel.backends.postgres.migrations import ENCODING, ENCODING_HINT
from runnel.backends.redis.health import RedisServerFacts
from runnel.backends.redis_postgres.archive_ownership import format_redis_location
from runnel.errors import StoreError
from runnel.ports.clock import Clock
from runnel.settings.model import Settings

VERSION_MIN = 14


async def examine_postgres(
    settings: Settings, clock: Clock, *, redis: RedisServerFacts | None
) -> list[Finding]:
    """Checks the server; `redis` has the facts of its Redis, None if that can't be reached."""
    address = build_postgres_display_url(settings)
    try:
        facts = await read_archive_facts(
            build_postgres_url(settings), build_postgres_options(settings), clock
        )
    except StoreError as error:
        reason = str(error.__cause__ or error).rstrip(".")
        return [bad("PostgreSQL", f"{address}: {reason}", POSTGRES_REMEDY)]
    return [
        ok("PostgreSQL", address),
        *check_server(facts),
        *check_archive(facts),
        *([] if redis is None else check_pairing(facts, redis, settings.redis_prefix)),
    ]


def check_server(facts: ArchiveFacts) -> Iterator[Finding]:
    if facts.version < VERSION_MIN:
        remedy = f"upgrade: PostgreSQL {VERSION_MIN} or newer is needed"
        yield bad("version", f"PostgreSQL {facts.version_text}", remedy)
    else:
        yield ok("version", f"PostgreSQL {facts.version_text}")
    if facts.encoding == ENCODING:
        yield ok("encoding", facts.encoding)
    else:
        yield bad("encoding", f"{facts.encoding}, expected {ENCODING}", ENCODING_HINT)
    yield check_clock(facts.clock_ahead_s)


def check_archive(facts: ArchiveFacts) -> Iterator[Finding]:
    version, newest = facts.schema_version, facts.newest_version
    if version is None:
        yield ok("migrations", "none yet: the first orchestrator creates the tables")
        return
    if version > newest:
        yield bad("migrations", f"{version}, this Runnel knows up to {newest}", "upgrade Runnel")
    elif version < newest:
        remedy = "the next orchestrator that starts applies the missing ones"
        yield warn("migrations", f"{version} of {newest}", remedy)
    else:
        yield ok("migrations", f"{version} of {newest}")
    if facts.quarantined:
        remedy = "the table set_aside has the reasons and the refused data"
        yield bad("archive", f"{facts.quarantined} executions are quarantined", remedy)
    if facts.unreadable:
        remedy = "the column commands.problem has the reason; set it to NULL to send them again"
        yield bad("archive", f"{facts.unreadable} commands can't be read", remedy)


def check_pairing(facts: ArchiveFacts, redis: RedisServerFacts, prefix: str) -> Iterator[Finding]:
    place = format_redis_location(redis.address, prefix, get_host_name())
    if redis.incarnation not in {None, facts.incarnation}:
        remedy = "name the Redis and the PostgreSQL of one deployment, or use an empty Redis"
        yield bad("archive", "this Redis belongs to another archive", remedy)
    elif facts.redis.is_other(redis.identity, place):
        owner = facts.redis.locations[-1] if facts.redis.locations else "another address"
        remedy = (
            "name that Redis, or another POSTGRES_SCHEMA; if that Redis is lost for good, start "
            "'runnel orchestrator --take-archive' once"
        )
        yield bad("archive", f"it belongs to the Redis at {owner}", remedy)
    else:
        yield from _check_gaps(facts, redis)


def _check_gaps(facts: ArchiveFacts, redis: RedisServerFacts) -> Iterator[Finding]:
    """Reports the first gap only, because one accident causes all of them."""
    for partition, first in sorted(redis.journal_starts.items()):
        archived = facts.cursors.get(partition, 0)
        if first > archived + 1:
            backlog = (
                f"partition {partition}: it ends with commit {archived}, Redis starts with {first}"
            )
            remedy = "PostgreSQL was rolled back: stop all processes, empty Redis, start again"
            yield bad("archive", backlog, remedy)
            return
