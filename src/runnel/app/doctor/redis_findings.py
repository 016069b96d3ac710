"""What Runnel needs of a Redis server: that it forgets nothing, and that somebody decides."""

from collections.abc import Iterator
from typing import NamedTuple

from runnel.app.doctor import Finding, bad, judged_clock, ok, warn
from runnel.app.stores import REDIS_REMEDY, redis_address, redis_shown
from runnel.backends.redis.health import Health, ServerFacts
from runnel.errors import InputError, StoreError
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import LeaseRecord
from runnel.settings.model import Settings

VERSION_MIN = (6, 2)
MEMORY_SHARE_WARN = 0.8
LOOK_EVERY_S = 0.2
# Leases are renewed three times in their life: whoever has not by now is late.
SILENT_AFTER = 0.4
SHOWN_MAX = 3
MEGABYTE = 1_000_000


class RedisVerdict(NamedTuple):
    """`facts` are None when it can't be asked."""

    findings: list[Finding]
    facts: ServerFacts | None = None


async def examine_redis(settings: Settings, clock: Clock, ids: Ids) -> RedisVerdict:
    try:
        address = redis_shown(settings)
        health = Health(
            redis_address(settings),
            clock,
            ids,
            prefix=settings.redis_prefix,
            call_s=settings.redis_timeout_s,
        )
    except InputError as error:
        return RedisVerdict([bad("Redis", str(error), "set REDIS_URL")])
    try:
        facts = await health.facts()
        findings = [ok("Redis", address), *server_findings(facts), layout_finding(facts, settings)]
        if facts.partitions is not None:
            findings.append(await _owners(health, facts.partitions, settings, clock))
        return RedisVerdict(findings, facts)
    except StoreError as error:
        reason = str(error.__cause__ or error).rstrip(".")
        return RedisVerdict([bad("Redis", f"{address}: {reason}", REDIS_REMEDY)])
    finally:
        await health.close()


def server_findings(facts: ServerFacts) -> Iterator[Finding]:
    named = f"{facts.product} {facts.version_text}"
    if facts.version < VERSION_MIN and facts.product == "Redis":
        yield bad("version", named, "upgrade: Redis 6.2 or newer, or Valkey, is needed")
    else:
        yield ok("version", named)
    if facts.role not in {"", "master"}:
        yield bad("role", facts.role, "name the primary server: a replica takes no writes")
    yield _durability(facts)
    if facts.eviction == "noeviction":
        yield ok("maxmemory-policy", facts.eviction)
    else:
        remedy = "set 'maxmemory-policy noeviction': another one throws away what must be kept"
        yield bad("maxmemory-policy", facts.eviction or "unknown", remedy)
    yield _memory(facts)
    yield judged_clock(facts.ahead_s)


def _durability(facts: ServerFacts) -> Finding:
    if not facts.has_aof:
        remedy = "set 'appendonly yes': without it a restart loses every unfinished execution"
        return bad("append-only file", "off", remedy)
    if facts.fsync == "no":
        remedy = "set 'appendfsync everysec': a power cut loses more than a second now"
        return warn("append-only file", "on, appendfsync no", remedy)
    return ok("append-only file", f"on, appendfsync {facts.fsync or 'not told'}")


def _memory(facts: ServerFacts) -> Finding:
    used = f"{facts.memory_used_bytes / MEGABYTE:,.0f} MB used"
    most = facts.memory_max_bytes
    if most == 0:
        return ok("memory", f"{used}, no maxmemory")
    found = f"{used} of {most / MEGABYTE:,.0f} MB"
    if facts.memory_used_bytes > MEMORY_SHARE_WARN * most:
        remedy = "give it more: when it is full, nothing can be stored and all work stops"
        return warn("memory", found, remedy)
    return ok("memory", found)


def layout_finding(facts: ServerFacts, settings: Settings) -> Finding:
    if facts.partitions is None:
        return ok("partitions", "none yet: the first process of Runnel makes them")
    if settings.partitions not in {None, facts.partitions}:
        return bad(
            "partitions",
            f"{facts.partitions}, but RUNNEL_PARTITIONS is {settings.partitions}",
            "set RUNNEL_PARTITIONS to what is there, or leave it out: it can't be changed",
        )
    return ok("partitions", str(facts.partitions))


async def _owners(health: Health, partitions: int, settings: Settings, clock: Clock) -> Finding:
    """Looks until every lease has been renewed, or should have been."""
    first = await health.owners(partitions)
    end = clock.monotonic() + SILENT_AFTER * settings.lease_s
    while True:
        last = await health.owners(partitions)
        silent = [number for number in first if _is_silent(first[number], last[number])]
        if not silent or clock.monotonic() > end:
            return owners_finding(last, silent)
        await clock.sleep(LOOK_EVERY_S)


def _is_silent(before: LeaseRecord | None, now: LeaseRecord | None) -> bool:
    return before is not None and before == now


def owners_finding(records: dict[int, LeaseRecord | None], silent: list[int]) -> Finding:
    free = [number for number, record in records.items() if record is None]
    owners = sorted({record.owner for record in records.values() if record is not None})
    idle = sorted({*free, *silent})
    if idle:
        which = ", ".join(map(str, idle[:SHOWN_MAX])) + (" …" if len(idle) > SHOWN_MAX else "")
        found = f"{len(idle)} of {len(records)} partitions have no living owner ({which})"
        return warn("orchestrators", found, "start one: 'runnel orchestrator'")
    return ok("orchestrators", f"{len(owners)}: {', '.join(owners)}")
