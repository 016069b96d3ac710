"""Processes that are measured get nothing of the settings around them."""

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


def test_no_setting_of_the_caller_reaches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://production:6379/0")
    monkeypatch.setenv("RUNNEL_DURABILITY", "power")
    monkeypatch.setenv("PATH_OF_MINE", "kept")

    found = clean_environment({"RUNNEL_DURABILITY": "process"})

    assert "REDIS_URL" not in found
    assert found["RUNNEL_DURABILITY"] == "process"
    assert found["PATH_OF_MINE"] == "kept"


def test_they_run_the_code_that_measures_wherever_they_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")

    path = clean_environment({}, [Path("repository")])["PYTHONPATH"].split(os.pathsep)

    assert path == [str(Path(runnel.__file__).parents[1]), "repository", "somewhere"]


async def test_nobody_waits_for_ever_for_one_that_has_ended(tmp_path: Path) -> None:
    with (
        ProcessFleet({"worker-0": ("no_such_module",)}, {}, tmp_path) as fleet,
        pytest.raises(ExceptionGroup) as caught,
    ):
        async with fleet.watch(RealClock()):
            await asyncio.Event().wait()

    assert caught.group_contains(ServerFailedError, match="worker-0 server ended during")


async def test_modules_that_are_not_of_runnel_are_found_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "theirs.py").write_text("raise SystemExit('it was found')")
    places = {"worker-0": ("theirs",)}

    with ProcessFleet(places, {}, tmp_path, import_from=[tmp_path / "elsewhere"]) as fleet:
        await wait_until(lambda: "worker-0" in fleet.find_ended())
        said = fleet.find_ended()["worker-0"]

    assert said == "it was found"


async def test_one_that_has_ended_is_named_with_its_last_words(tmp_path: Path) -> None:
    with ProcessFleet({"worker-0": ("no_such_module",)}, {}, tmp_path) as fleet:
        await wait_until(lambda: "worker-0" in fleet.find_ended())
        said = fleet.find_ended()["worker-0"]

    assert "No module named no_such_module" in said
