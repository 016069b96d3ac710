"""`runnel doctor`: checks the machine, the settings and the servers; one finding per check."""

import os
import sqlite3
from enum import StrEnum
from pathlib import Path

import msgspec

from runnel.backends.sqlite.database import FILE_NAME
from runnel.ports.clock import Clock, IdGenerator
from runnel.settings import find_misspelled_variables
from runnel.settings.model import Settings


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: `found` is the state, `remedy` the advice, empty if all is well."""

    verdict: Verdict
    about: str
    found: str
    remedy: str = ""


def ok(about: str, found: str) -> Finding:
    return Finding(verdict=Verdict.OK, about=about, found=found)


def warn(about: str, found: str, remedy: str) -> Finding:
    return Finding(verdict=Verdict.WARN, about=about, found=found, remedy=remedy)


def bad(about: str, found: str, remedy: str) -> Finding:
    return Finding(verdict=Verdict.BAD, about=about, found=found, remedy=remedy)


async def examine(settings: Settings, clock: Clock, ids: IdGenerator) -> list[Finding]:
    """Checks everything that the settings name; changes and creates nothing."""
    findings = [ok("settings", f"RUNNEL_ENV={settings.environment}"), *_check_setting_names()]
    if settings.has_redis or settings.environment == "prod":
        return [*findings, *await _examine_servers(settings, clock, ids)]
    return [*findings, ok("SQLite", sqlite3.sqlite_version), _check_data_dir(settings)]


async def _examine_servers(settings: Settings, clock: Clock, ids: IdGenerator) -> list[Finding]:
    """Checks the servers; a missing package is a finding."""
    try:
        from runnel.app.doctor.redis_findings import examine_redis

        redis, facts = await examine_redis(settings, clock, ids)
    except ModuleNotFoundError as error:
        return [
            bad("Redis", f"the package '{error.name}' is missing", _format_install_command("redis"))
        ]
    if not settings.has_postgres:
        return [*redis, _warn_unnamed_archive(facts.incarnation if facts else None)]
    try:
        from runnel.app.doctor.postgres_findings import examine_postgres

        return [*redis, *await examine_postgres(settings, clock, redis=facts)]
    except ModuleNotFoundError as error:
        missing = f"the package '{error.name}' is missing"
        return [*redis, bad("PostgreSQL", missing, _format_install_command("postgres"))]


def _warn_unnamed_archive(incarnation: str | None) -> Finding:
    if incarnation is not None:
        remedy = "set POSTGRES_URL for everything but workers"
        return warn("archive", "this Redis has an archive, but POSTGRES_URL is not set", remedy)
    remedy = "set POSTGRES_URL: without an archive, all data is lost if Redis is lost"
    return warn("archive", "none", remedy)


def _format_install_command(extra: str) -> str:
    return f"pip install 'runnel[{extra}]'"


def _check_setting_names() -> list[Finding]:
    return [
        warn("settings", problem, "correct the name, or remove it")
        for problem in find_misspelled_variables()
    ]


def _check_data_dir(settings: Settings) -> Finding:
    folder = Path(settings.data_dir)
    parent = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        remedy = "name another directory with RUNNEL_DATA_DIR or --data-dir"
        return bad("data directory", f"'{folder}': '{parent}' can't be written to", remedy)
    has_data = (folder / FILE_NAME).is_file()
    return ok("data directory", f"'{folder}'" + ("" if has_data else ", created by the first run"))


__all__ = ["Finding", "Verdict", "examine"]


# The difference between the clock of a server and the local one.

CLOCK_SKEW_S_WARN = 0.5
CLOCK_SKEW_S_BAD = 5.0


def check_clock(ahead_s: float) -> Finding:
    away_s = abs(ahead_s)
    skew = f"{away_s:.2f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine"
    remedy = "synchronise the clocks (NTP): timers and rate limits depend on them"
    if away_s > CLOCK_SKEW_S_BAD:
        return bad("clock", skew, remedy)
    return warn("clock", skew, remedy) if away_s > CLOCK_SKEW_S_WARN else ok("clock", skew)
