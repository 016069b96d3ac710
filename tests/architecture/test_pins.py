"""Each pin file is complete, because `pip install --no-deps` installs nothing else."""

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
# The requirement of each file, besides build.in.
FILES = {"dev.txt": "runnel[dev]", "run.txt": "runnel"}


def text_of(file: str) -> str:
    return (REQUIREMENTS / file).read_text(encoding="utf-8")


def roots_of(file: str) -> list[Requirement]:
    build = [line for line in text_of("build.in").splitlines() if not line.startswith("#")]
    return [Requirement(line) for line in (FILES[file], *build)]


def pins(text: str) -> dict[str, str]:
    """Returns the version of each pinned package whose marker applies here."""
    lines = [line.removesuffix("\\") for line in text.splitlines() if line[:1].isalnum()]
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in map(Requirement, lines)
        if is_active(pin)
    }


def problems(text: str, roots: Iterable[Requirement]) -> list[str]:
    """Returns one sentence for each requirement that the pins do not meet."""
    pinned = pins(text)
    required = closure(pinned, roots)
    return sorted({line for requirement in required for line in unmet(requirement, pinned)})


def closure(pinned: Mapping[str, str], roots: Iterable[Requirement]) -> set[Requirement]:
    """Returns all requirements of the roots, the pinned packages, and the extras of both."""
    required: set[Requirement] = set()
    new = {*roots, *(Requirement(name) for name in pinned)}
    while new:
        required |= new
        new = {inner for outer in new for inner in requirements_of(outer, pinned)} - required
    return required


def requirements_of(package: Requirement, pinned: Mapping[str, str]) -> Iterator[Requirement]:
    """Yields the requirements of a package. A package that is not pinned yields none."""
    name = canonicalize_name(package.name)
    if name == PROJECT["name"]:
        extras = [PROJECT["optional-dependencies"][extra] for extra in package.extras]
        requirements = map(Requirement, chain(PROJECT["dependencies"], *extras))
        yield from filter(is_active, requirements)
    elif name in pinned:
        requirements = map(Requirement, requires(name) or [])
        yield from (
            requirement for requirement in requirements if is_active(requirement, package.extras)
        )


def is_active(requirement: Requirement, extras: Iterable[str] = ()) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def unmet(requirement: Requirement, pinned: Mapping[str, str]) -> Iterator[str]:
    name = canonicalize_name(requirement.name)
    if name == PROJECT["name"]:
        return
    if name not in pinned:
        yield f"{name} is not pinned"
    elif not requirement.specifier.contains(pinned[name], prereleases=True):
        yield f"{name}=={pinned[name]} is not {requirement.specifier}"


@pytest.mark.parametrize("file", FILES)
def test_a_pin_file_holds_all_requirements_of_its_packages(file: str) -> None:
    assert problems(text_of(file), roots_of(file)) == []


@pytest.mark.parametrize("file", FILES)
def test_the_installed_packages_are_the_pinned_ones(file: str) -> None:
    """These tests read the requirements of installed packages, so the versions must match."""
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

    messages = problems("\n".join(doctored), roots_of("dev.txt"))

    assert doctored != lines
    assert any(line.startswith(expected) for line in messages), messages


def test_the_extras_of_a_requirement_are_followed() -> None:
    """`httpx[http2]` requires h2, which httpx alone does not."""
    roots = [Requirement("httpx[http2]")]

    assert problems(text_of("dev.txt"), roots) == ["h2 is not pinned"]
