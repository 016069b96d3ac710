"""Each pin file is closed. `pip install --no-deps` installs it: a package it lacks is not there."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import requires, version
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What each file is made of, besides build.in.
FILES = {"dev.txt": "runnel[dev]", "run.txt": "runnel"}


def text_of(file: str) -> str:
    return (REQUIREMENTS / file).read_text(encoding="utf-8")


def roots_of(file: str) -> list[Requirement]:
    build = [line for line in text_of("build.in").splitlines() if not line.startswith("#")]
    return [Requirement(line) for line in (FILES[file], *build)]


def pins(text: str) -> dict[str, str]:
    """The version of each pinned package whose marker applies here."""
    lines = [line.removesuffix("\\") for line in text.splitlines() if line[:1].isalnum()]
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in map(Requirement, lines)
        if is_active(pin)
    }


def problems(text: str, roots: Iterable[Requirement]) -> list[str]:
    """One sentence for each requirement that the pins do not meet."""
    pinned = pins(text)
    return sorted({line for asked in closure(pinned, roots) for line in unmet(asked, pinned)})


def closure(pinned: Mapping[str, str], roots: Iterable[Requirement]) -> set[Requirement]:
    """All that is asked for: by the roots, by the pinned packages, and by the extras of either."""
    found: set[Requirement] = set()
    waiting = {*roots, *(Requirement(name) for name in pinned)}
    while waiting:
        found |= waiting
        waiting = {wanted for asked in waiting for wanted in asked_by(asked, pinned)} - found
    return found


def asked_by(asker: Requirement, pinned: Mapping[str, str]) -> Iterator[Requirement]:
    """What an asked package asks for in turn. One that is not pinned is a problem by itself."""
    name = canonicalize_name(asker.name)
    if name == PROJECT["name"]:
        extras = [PROJECT["optional-dependencies"][extra] for extra in asker.extras]
        wanted = map(Requirement, chain(PROJECT["dependencies"], *extras))
        yield from filter(is_active, wanted)
    elif name in pinned:
        wanted = map(Requirement, requires(name) or [])
        yield from (each for each in wanted if is_active(each, asker.extras))


def is_active(wanted: Requirement, extras: Iterable[str] = ()) -> bool:
    marker = wanted.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def unmet(asked: Requirement, pinned: Mapping[str, str]) -> Iterator[str]:
    name = canonicalize_name(asked.name)
    if name == PROJECT["name"]:
        return
    if name not in pinned:
        yield f"{name} is not pinned"
    elif not asked.specifier.contains(pinned[name], prereleases=True):
        yield f"{name}=={pinned[name]} is not {asked.specifier}"


@pytest.mark.parametrize("file", FILES)
def test_a_pin_file_holds_all_that_its_packages_ask_for(file: str) -> None:
    assert problems(text_of(file), roots_of(file)) == []


@pytest.mark.parametrize("file", FILES)
def test_the_installed_packages_are_the_pinned_ones(file: str) -> None:
    """So the requirements that these tests read are those of the pins."""
    pinned = pins(text_of(file))

    assert {name: version(name) for name in pinned} == pinned


def test_a_user_gets_the_versions_that_were_tested() -> None:
    assert pins(text_of("run.txt")).items() <= pins(text_of("dev.txt")).items()


@pytest.mark.parametrize(
    ("pin", "other", "expected"),
    [
        ("fastapi==", None, "fastapi is not pinned"),  # a dependency of runnel
        ("h11==", None, "h11 is not pinned"),  # one of a dependency
        ("hatchling==", None, "hatchling is not pinned"),  # one of build.in
        ("asyncpg==", None, "asyncpg is not pinned"),  # one of runnel[postgres]
        ("pluggy==", "pluggy==0.1", "pluggy==0.1 is not "),
        ("pluggy==", "pluggy==9 ; python_version < '3'", "pluggy is not pinned"),
    ],
)
def test_a_gap_in_the_pins_is_found(pin: str, other: str | None, expected: str) -> None:
    lines = text_of("dev.txt").splitlines()
    doctored = [other or "" if line.startswith(pin) else line for line in lines]

    found = problems("\n".join(doctored), roots_of("dev.txt"))

    assert doctored != lines
    assert any(line.startswith(expected) for line in found), found


def test_the_extras_of_a_requirement_are_followed() -> None:
    """`httpx[http2]` asks for h2, which httpx alone does not."""
    asked = [Requirement("httpx[http2]")]

    assert problems(text_of("dev.txt"), asked) == ["h2 is not pinned"]
