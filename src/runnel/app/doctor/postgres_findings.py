"""What Runnel needs of a PostgreSQL server: that it is the archive of this Redis."""

from collections.abc import Iterator

from runnel.app.doctor import Finding, bad, judged_clock, ok, warn
from runnel.app.process_signals import host_name
from runnel.app.stores import POSTGRES_REMEDY, postgres_address, postgres_shown
from runnel.backends.postgres.health import ArchiveFacts, archive_facts
from runnel.backends.postgres.migrations import ENCODING, REMEDY_ENCODING
from runnel.backends.redis.health import ServerFacts
from runnel.backends.redis_postgres.pairing import place_of
from runnel.errors import StoreError
from runnel.ports.clock import Clock
from runnel.settings.model import Settings

VERSION_MIN = 14


async def examine_postgres(
    settings: Settings, clock: Clock, *, redis: ServerFacts | None
) -> list[Finding]:
    """`redis` is what the Redis says that it is to belong to."""
    address = postgres_shown(settings)
    try:
        facts = await archive_facts(
            postgres_address(settings),
            clock,
            schema=settings.postgres_schema,
            call_s=settings.postgres_timeout_s,
        )
    except StoreError as error:
        reason = str(error.__cause__ or error).rstrip(".")
        return [bad("PostgreSQL", f"{address}: {reason}", POSTGRES_REMEDY)]
    return [
        ok("PostgreSQL", address),
        *server_findings(facts),
        *archive_findings(facts),
        *([] if redis is None else pair_findings(facts, redis, settings.redis_prefix)),
    ]


def server_findings(facts: ArchiveFacts) -> Iterator[Finding]:
    if facts.version < VERSION_MIN:
        remedy = f"upgrade: PostgreSQL {VERSION_MIN} or newer is needed"
        yield bad("version", f"PostgreSQL {facts.version_text}", remedy)
    else:
        yield ok("version", f"PostgreSQL {facts.version_text}")
    if facts.encoding == ENCODING:
        yield ok("encoding", facts.encoding)
    else:
        yield bad("encoding", f"{facts.encoding}, expected {ENCODING}", REMEDY_ENCODING)
    yield judged_clock(facts.ahead_s)


def archive_findings(facts: ArchiveFacts) -> Iterator[Finding]:
    found, newest = facts.schema_version, facts.newest_version
    if found is None:
        yield ok("migrations", "none yet: the first orchestrator makes the tables")
        return
    if found > newest:
        yield bad("migrations", f"{found}, this Runnel knows up to {newest}", "upgrade Runnel")
    elif found < newest:
        remedy = "the next orchestrator that starts applies the rest"
        yield warn("migrations", f"{found} of {newest}", remedy)
    else:
        yield ok("migrations", f"{found} of {newest}")
    if facts.set_aside:
        remedy = "the table set_aside says why, and has what was refused of them"
        yield bad("archive", f"{facts.set_aside} executions are set aside", remedy)
    if facts.unreadable:
        remedy = "the column commands.problem says why; set it to NULL to have them sent again"
        yield bad("archive", f"{facts.unreadable} commands can't be read", remedy)


def pair_findings(facts: ArchiveFacts, redis: ServerFacts, prefix: str) -> Iterator[Finding]:
    place = place_of(redis.address, prefix, host_name())
    if redis.incarnation not in {None, facts.incarnation}:
        remedy = "name the two that belong together, or an empty Redis to be filled from it"
        yield bad("archive", "this Redis belongs to another one", remedy)
    elif facts.redis.is_other(redis.identity, place):
        known = facts.redis.places[-1] if facts.redis.places else "another address"
        remedy = (
            "name that one, or another POSTGRES_SCHEMA; if it is gone for good, start "
            "'runnel orchestrator --take-archive' once"
        )
        yield bad("archive", f"it belongs to the Redis at {known}", remedy)
    else:
        yield from _gaps(facts, redis)


def _gaps(facts: ArchiveFacts, redis: ServerFacts) -> Iterator[Finding]:
    """One is enough to know: they come from the same accident."""
    for partition, first in sorted(redis.journals.items()):
        archived = facts.cursors.get(partition, 0)
        if first > archived + 1:
            what = (
                f"partition {partition}: it ends with commit {archived}, Redis begins with {first}"
            )
            remedy = "PostgreSQL was set back: stop everything, empty this Redis, start again"
            yield bad("archive", what, remedy)
            return
