"""Measured processes: their environment, their imports, and an early end."""

import asyncio
import os
from pathlib import Path

import pytest

import runnel
from runnel.bench.deployment import clean_environment
from runnel.bench.servers import ProcessFleet
from runnel.engine.clock import RealClock
from runnel.errors import ServerFailedError
from tests.waiting import wait_until


def test_a_measured_process_gets_no_setting_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://production:6379/0")
    monkeypatch.setenv("RUNNEL_DURABILITY", "power")
    monkeypatch.setenv("PATH_OF_MINE", "kept")

    environment = clean_environment({"RUNNEL_DURABILITY": "process"})

    assert "REDIS_URL" not in environment
    assert environment["RUNNEL_DURABILITY"] == "process"
    assert environment["PATH_OF_MINE"] == "kept"


def test_a_measured_process_imports_the_same_runnel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")

    path = clean_environment({}, [Path("repository")])["PYTHONPATH"].split(os.pathsep)

    assert path == [str(Path(runnel.__file__).parents[1]), "repository", "somewhere"]


async def test_the_early_end_of_a_process_fails_the_measurement(tmp_path: Path) -> None:
    with (
        ProcessFleet({"worker-0": ("no_such_module",)}, {}, tmp_path) as fleet,
        pytest.raises(ExceptionGroup) as caught,
    ):
        async with fleet.watch(RealClock()):
            await asyncio.Event().wait()

    assert caught.group_contains(ServerFailedError, match="worker-0 server ended during")


async def test_a_process_imports_modules_from_the_given_folders(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "theirs.py").write_text("raise SystemExit('it was found')")
    commands = {"worker-0": ("theirs",)}

    with ProcessFleet(commands, {}, tmp_path, import_from=[tmp_path / "elsewhere"]) as fleet:
        await wait_until(lambda: "worker-0" in fleet.find_ended())
        log = fleet.find_ended()["worker-0"]

    assert log == "it was found"


async def test_a_process_that_has_ended_is_listed_with_its_last_log_lines(tmp_path: Path) -> None:
    with ProcessFleet({"worker-0": ("no_such_module",)}, {}, tmp_path) as fleet:
        await wait_until(lambda: "worker-0" in fleet.find_ended())
        log = fleet.find_ended()["worker-0"]

    assert "No module named no_such_module" in log
