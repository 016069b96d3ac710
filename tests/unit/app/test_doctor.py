"""`runnel doctor` turns facts into findings: a verdict, and a remedy unless all is well."""

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


def list_problems(findings: list[Finding]) -> list[tuple[str, str]]:
    """Checks that exactly the problems have a remedy."""
    assert all(bool(finding.remedy) is (finding.verdict != "ok") for finding in findings)
    problems = [finding for finding in findings if finding.verdict != "ok"]
    return [(str(finding.verdict), finding.about) for finding in problems]


def test_a_correct_server_gets_no_remedy() -> None:
    assert list_problems(list(check_server(REDIS))) == []
    assert list_problems(list(postgres_findings.check_server(ARCHIVE))) == []
    assert list_problems(list(postgres_findings.check_archive(ARCHIVE))) == []
    assert list_problems(list(postgres_findings.check_pairing(ARCHIVE, REDIS, "runnel"))) == []


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
def test_a_problem_of_redis_is_reported(
    changes: dict[str, object], expected: tuple[str, str]
) -> None:
    facts = msgspec.structs.replace(REDIS, **changes)

    assert list_problems(list(check_server(facts))) == [expected]


def test_a_low_version_of_valkey_is_not_an_old_redis() -> None:
    facts = msgspec.structs.replace(REDIS, product="Valkey", version=(1, 0))

    assert list_problems(list(check_server(facts))) == []


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
def test_a_problem_of_an_archive_is_reported(
    changes: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    facts = msgspec.structs.replace(ARCHIVE, **changes)

    assert list_problems(list(postgres_findings.check_archive(facts))) == expected


@pytest.mark.parametrize(
    ("incarnation", "identity", "matches"),
    [
        (None, None, True),
        ("abc", "one", True),
        ("another", "one", False),
        ("abc", "two", False),
        ("abc", None, True),
    ],
)
def test_an_archive_must_belong_to_its_redis(
    incarnation: str | None, identity: str | None, matches: bool
) -> None:
    archive = msgspec.structs.replace(
        ARCHIVE, redis=PairedRedis("one", ["redis:6379/0 with the prefix runnel"])
    )
    facts = msgspec.structs.replace(
        REDIS, incarnation=incarnation, identity=identity, address="redis:6379/0"
    )

    problems = list_problems(list(postgres_findings.check_pairing(archive, facts, "runnel")))

    assert problems == ([] if matches else [("bad", "archive")])


def test_an_empty_redis_at_another_address_does_not_match_the_archive() -> None:
    archive = msgspec.structs.replace(ARCHIVE, redis=PairedRedis("one", ["redis:6379/0 and so on"]))
    facts = msgspec.structs.replace(REDIS, address="other:6379/0")

    [finding] = postgres_findings.check_pairing(archive, facts, "runnel")

    assert finding.found == "it belongs to the Redis at redis:6379/0 and so on"


def test_an_old_postgresql_is_reported() -> None:
    facts = msgspec.structs.replace(ARCHIVE, version=13)

    assert list_problems(list(postgres_findings.check_server(facts))) == [("bad", "version")]


def test_a_database_with_another_encoding_is_reported() -> None:
    facts = msgspec.structs.replace(ARCHIVE, encoding="LATIN1")

    assert list_problems(list(postgres_findings.check_server(facts))) == [("bad", "encoding")]


@pytest.mark.parametrize(
    ("setting", "stored", "verdict"),
    [(None, 16, "ok"), (16, 16, "ok"), (8, 16, "bad"), (8, None, "ok")],
)
def test_the_number_of_partitions_must_equal_the_stored_one(
    setting: int | None, stored: int | None, verdict: str
) -> None:
    facts = msgspec.structs.replace(REDIS, partitions=stored)

    assert check_partitions(facts, Settings(partitions=setting)).verdict == verdict


def test_partitions_without_a_living_owner_are_counted() -> None:
    owned = {
        number: LeaseRecord(partition=number, owner="one", epoch=1, counter=1) for number in (0, 1)
    }

    assert report_owners({**owned}, []).found == "1: one"
    finding = report_owners({**owned, 2: None, 3: None}, [1])
    assert finding.verdict == "warn"
    assert finding.found == "3 of 4 partitions have no living owner (1, 2, 3)"


def test_a_clock_finding_has_the_direction_of_the_difference() -> None:
    assert check_clock(0.1).found == "0.10 s ahead of this machine"
    assert check_clock(-7.0).found == "7.00 s behind this machine"
