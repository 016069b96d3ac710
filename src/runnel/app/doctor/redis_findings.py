"""Checks of Redis: version, durability, memory, and whether orchestrators are alive."""

from collections.abc import Iterator
from typing import NamedTuple

from runnel.app.doctor import Finding, bad, check_clock, ok, warn
from runnel.app.stores import (
    REDIS_REMEDY,
    build_redis_display_url,
    build_redis_options,
    build_redis_url,
)
from runnel.backends.redis.health import RedisHealth, RedisServerFacts
from runnel.errors import InputError, StoreError
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.store import LeaseRecord
from runnel.settings.model import Settings

VERSION_MIN = (6, 2)
MEMORY_SHARE_WARN = 0.8
POLL_INTERVAL_S = 0.2
# An owner renews a lease three times in its duration. After this share of it, a renewal is late.
SILENT_LEASE_SHARE = 0.4
SHOWN_MAX = 3
MEGABYTE = 1_000_000


class RedisExamination(NamedTuple):
    """The findings about a Redis; `facts` is None if it can't be reached."""

    findings: list[Finding]
    facts: RedisServerFacts | None = None


async def examine_redis(settings: Settings, clock: Clock, ids: IdGenerator) -> RedisExamination:
    try:
        address = build_redis_display_url(settings)
        health = RedisHealth(build_redis_url(settings), build_redis_options(settings), clock, ids)
    except InputError as error:
        return RedisExamination([bad("Redis", str(error), "set REDIS_URL")])
    try:
        facts = await health.read_facts()
        findings = [ok("Redis", address), *check_server(facts), check_partitions(facts, settings)]
        if facts.partitions is not None:
            findings.append(await _check_owners(health, facts.partitions, settings, clock))
        return RedisExamination(findings, facts)
    except StoreError as error:
        reason = str(error.__cause__ or error).rstrip(".")
        return RedisExamination([bad("Redis", f"{address}: {reason}", REDIS_REMEDY)])
    finally:
        await health.close()


def check_server(facts: RedisServerFacts) -> Iterator[Finding]:
    named = f"{facts.product} {facts.version_text}"
    if facts.version < VERSION_MIN and facts.product == "Redis":
        yield bad("version", named, "upgrade: Redis 6.2 or newer, or Valkey, is needed")
    else:
        yield ok("version", named)
    if facts.role not in {"", "master"}:
        yield bad("role", facts.role, "name the primary server: a replica accepts no writes")
    yield _check_durability(facts)
    if facts.eviction == "noeviction":
        yield ok("maxmemory-policy", facts.eviction)
    else:
        remedy = "set 'maxmemory-policy noeviction': other policies delete data that Runnel needs"
        yield bad("maxmemory-policy", facts.eviction or "unknown", remedy)
    yield _check_memory(facts)
    yield check_clock(facts.clock_ahead_s)


def _check_durability(facts: RedisServerFacts) -> Finding:
    if not facts.has_aof:
        remedy = "set 'appendonly yes': without it a restart loses every unfinished execution"
        return bad("append-only file", "off", remedy)
    if facts.fsync == "no":
        remedy = "set 'appendfsync everysec': now a power cut loses more than a second of data"
        return warn("append-only file", "on, appendfsync no", remedy)
    return ok("append-only file", f"on, appendfsync {facts.fsync or 'unknown'}")


def _check_memory(facts: RedisServerFacts) -> Finding:
    used = f"{facts.memory_used_bytes / MEGABYTE:,.0f} MB used"
    limit_bytes = facts.memory_max_bytes
    if limit_bytes == 0:
        return ok("memory", f"{used}, no maxmemory")
    usage = f"{used} of {limit_bytes / MEGABYTE:,.0f} MB"
    if facts.memory_used_bytes > MEMORY_SHARE_WARN * limit_bytes:
        remedy = "raise maxmemory: when it is full, nothing can be stored and all work stops"
        return warn("memory", usage, remedy)
    return ok("memory", usage)


def check_partitions(facts: RedisServerFacts, settings: Settings) -> Finding:
    if facts.partitions is None:
        return ok("partitions", "none yet: the first process of Runnel creates them")
    if settings.partitions not in {None, facts.partitions}:
        return bad(
            "partitions",
            f"{facts.partitions}, but RUNNEL_PARTITIONS is {settings.partitions}",
            "set RUNNEL_PARTITIONS to the stored number, or unset it: the number can't be changed",
        )
    return ok("partitions", str(facts.partitions))


async def _check_owners(
    health: RedisHealth, partitions: int, settings: Settings, clock: Clock
) -> Finding:
    """Polls until every owner has renewed its lease, or should have."""
    first = await health.read_owners(partitions)
    end = clock.monotonic() + SILENT_LEASE_SHARE * settings.lease_s
    while True:
        last = await health.read_owners(partitions)
        silent = [number for number in first if _is_silent(first[number], last[number])]
        if not silent or clock.monotonic() > end:
            return report_owners(last, silent)
        await clock.sleep(POLL_INTERVAL_S)


def _is_silent(before: LeaseRecord | None, now: LeaseRecord | None) -> bool:
    return before is not None and before == now


def report_owners(records: dict[int, LeaseRecord | None], silent: list[int]) -> Finding:
    free = [number for number, record in records.items() if record is None]
    owners = sorted({record.owner for record in records.values() if record is not None})
    idle = sorted({*free, *silent})
    if idle:
        numbers = ", ".join(map(str, idle[:SHOWN_MAX])) + (" …" if len(idle) > SHOWN_MAX else "")
        problem = f"{len(idle)} of {len(records)} partitions have no living owner ({numbers})"
        return warn("orchestrators", problem, "start one: 'runnel orchestrator'")
    return ok("orchestrators", f"{len(owners)}: {', '.join(owners)}")
