"""The doctor gives a verdict for each fact, and a remedy for each problem."""

import msgspec
import pytest

from runnel.app.doctor import Finding, check_clock, postgres_findings
from runnel.app.doctor.redis_findings import check_partitions, check_server, report_owners
from runnel.backends.postgres.database import PairedRedis
from runnel.backends.postgres.health import ArchiveFacts
from runnel.backends.redis.health import RedisServerFacts
from runnel.ports.store import LeaseRecord
from runnel.settings.model import Settings

REDIS = RedisServerFacts(
    product="Redis",
    version=(7, 2),
    version_text="7.2.4",
    role="master",
    has_aof=True,
    fsync="everysec",
    eviction="noeviction",
    memory_used_bytes=1_000_000,
    memory_max_bytes=0,
    clock_ahead_s=0.0,
    partitions=16,
    incarnation=None,
)
ARCHIVE = ArchiveFacts(
    version=15,
    version_text="15.4",
    encoding="UTF8",
    schema_version=2,
    newest_version=2,
    incarnation="abc",
    clock_ahead_s=0.0,
)


def unfit(findings: list[Finding]) -> list[tuple[str, str]]:
    assert all(bool(each.remedy) is (each.verdict != "ok") for each in findings)
    return [(str(each.verdict), each.about) for each in findings if each.verdict != "ok"]


def test_a_server_as_it_should_be_gets_no_remedy() -> None:
    assert unfit(list(check_server(REDIS))) == []
    assert unfit(list(postgres_findings.check_server(ARCHIVE))) == []
    assert unfit(list(postgres_findings.check_archive(ARCHIVE))) == []
    assert unfit(list(postgres_findings.check_pairing(ARCHIVE, REDIS, "runnel"))) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"version": (6, 0)}, ("bad", "version")),
        ({"role": "slave"}, ("bad", "role")),
        ({"has_aof": False}, ("bad", "append-only file")),
        ({"fsync": "no"}, ("warn", "append-only file")),
        ({"eviction": "volatile-lru"}, ("bad", "maxmemory-policy")),
        ({"memory_max_bytes": 1_100_000}, ("warn", "memory")),
        ({"clock_ahead_s": -0.6}, ("warn", "clock")),
        ({"clock_ahead_s": 6.0}, ("bad", "clock")),
    ],
)
def test_what_redis_lacks_is_named(changes: dict[str, object], expected: tuple[str, str]) -> None:
    facts = msgspec.structs.replace(REDIS, **changes)

    assert unfit(list(check_server(facts))) == [expected]


def test_an_old_number_of_valkey_is_not_an_old_redis() -> None:
    facts = msgspec.structs.replace(REDIS, product="Valkey", version=(1, 0))

    assert unfit(list(check_server(facts))) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"schema_version": None, "incarnation": None}, []),
        ({"schema_version": 1}, [("warn", "migrations")]),
        ({"schema_version": 3}, [("bad", "migrations")]),
        ({"quarantined": 2}, [("bad", "archive")]),
        ({"unreadable": 1}, [("bad", "archive")]),
    ],
)
def test_what_is_wrong_with_an_archive_is_named(
    changes: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    facts = msgspec.structs.replace(ARCHIVE, **changes)

    assert unfit(list(postgres_findings.check_archive(facts))) == expected


@pytest.mark.parametrize(
    ("incarnation", "identity", "is_fit"),
    [
        (None, None, True),
        ("abc", "one", True),
        ("another", "one", False),
        ("abc", "two", False),
        ("abc", None, True),
    ],
)
def test_an_archive_has_to_be_that_of_its_redis(
    incarnation: str | None, identity: str | None, is_fit: bool
) -> None:
    archive = msgspec.structs.replace(
        ARCHIVE, redis=PairedRedis("one", ["redis:6379/0 with the prefix runnel"])
    )
    facts = msgspec.structs.replace(
        REDIS, incarnation=incarnation, identity=identity, address="redis:6379/0"
    )

    found = unfit(list(postgres_findings.check_pairing(archive, facts, "runnel")))

    assert found == ([] if is_fit else [("bad", "archive")])


def test_an_empty_redis_at_another_address_is_not_the_one_of_the_archive() -> None:
    archive = msgspec.structs.replace(ARCHIVE, redis=PairedRedis("one", ["redis:6379/0 and so on"]))
    facts = msgspec.structs.replace(REDIS, address="other:6379/0")

    [finding] = postgres_findings.check_pairing(archive, facts, "runnel")

    assert finding.found == "it belongs to the Redis at redis:6379/0 and so on"


def test_an_old_postgresql_is_named() -> None:
    facts = msgspec.structs.replace(ARCHIVE, version=13)

    assert unfit(list(postgres_findings.check_server(facts))) == [("bad", "version")]


def test_a_database_that_can_not_hold_every_text_is_named() -> None:
    facts = msgspec.structs.replace(ARCHIVE, encoding="LATIN1")

    assert unfit(list(postgres_findings.check_server(facts))) == [("bad", "encoding")]


@pytest.mark.parametrize(
    ("wanted", "found", "verdict"),
    [(None, 16, "ok"), (16, 16, "ok"), (8, 16, "bad"), (8, None, "ok")],
)
def test_the_number_of_partitions_is_that_of_the_store(
    wanted: int | None, found: int | None, verdict: str
) -> None:
    facts = msgspec.structs.replace(REDIS, partitions=found)

    assert check_partitions(facts, Settings(partitions=wanted)).verdict == verdict


def test_partitions_without_a_living_owner_are_counted() -> None:
    owned = {
        number: LeaseRecord(partition=number, owner="one", epoch=1, counter=1) for number in (0, 1)
    }

    assert report_owners({**owned}, []).found == "1: one"
    some = report_owners({**owned, 2: None, 3: None}, [1])
    assert some.verdict == "warn"
    assert some.found == "3 of 4 partitions have no living owner (1, 2, 3)"


def test_a_clock_that_differs_says_in_which_direction() -> None:
    assert check_clock(0.1).found == "0.10 s ahead of this machine"
    assert check_clock(-7.0).found == "7.00 s behind this machine"
