"""One test per rule over the whole tree. Each test lists every problem that it finds."""

import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.rules import Module, Rule

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "runnel"
TESTS = ROOT / "tests"
PROGRAMS = tuple(ROOT / folder for folder in ("simulation", "bench", "tools", "examples"))

EVERYWHERE = (SOURCE, TESTS, *PROGRAMS)
FOLDERS: dict[Rule, tuple[Path, ...]] = {
    rules.size: EVERYWHERE,
    rules.parameters: EVERYWHERE,
    rules.file_name: EVERYWHERE,
    rules.nothing_swallowed: EVERYWHERE,
    rules.tests_assert: EVERYWHERE,
    rules.finished: (SOURCE, *PROGRAMS),
    rules.no_sleep: (TESTS,),
    rules.pure: (SOURCE,),
    rules.tasks_in_groups: (SOURCE,),
    rules.no_assert: (SOURCE,),
    rules.no_print: (SOURCE,),
    rules.imports_on_top: (SOURCE,),
    rules.shipped: (SOURCE,),
}

# Where a rule does not hold, and why. A path ending in a slash stands for the folder.
EXEMPT: dict[str, tuple[Rule, ...]] = {
    "engine/clock.py": (rules.pure,),  # the one real clock, ids and randomness
    # Its patience with a server is asyncio's own: connecting, and one alarm for all that is asked.
    "backends/redis/connection.py": (rules.pure,),
    # For handlers of a program that has no clock for them.
    "handlers/environment.py": (rules.pure,),
    # These take 45 ms, and httpx takes 110: only who calls something pays.
    "handlers/__init__.py": (rules.imports_on_top,),
    "handlers/http/__init__.py": (rules.imports_on_top,),
    "core/templates/parser.py": (rules.imports_on_top,),  # Jinja takes 60 ms: only with templates
    "authoring/documents/files.py": (rules.imports_on_top,),  # yaml takes 40 ms: only with YAML
    "authoring/input_schema.py": (rules.imports_on_top,),  # jsonschema takes 150 ms
    # Together 11 ms (2026-11), in every process that may have schedules: only who has one pays.
    "triggers/cron.py": (rules.imports_on_top,),
    # The engine that callers share outlives the call that opened it; its last user awaits it.
    "app/engine.py": (rules.tasks_in_groups,),
    # The reader of the feed serves listeners who come and go; the last one awaits its end.
    "notify/feed_reader.py": (rules.tasks_in_groups,),
    # A probe outlives the request that began it, when the store hangs.
    "api/state.py": (rules.tasks_in_groups,),
    # A protocol of asyncio has no coroutine that could wait on a clock.
    "api/server.py": (rules.pure,),
    # A module of tasks is imported by every worker; only who runs a workflow needs an engine.
    "app/decorated.py": (rules.imports_on_top,),
    # A call is shared by callers of whom each may give up; its backend ends it.
    "backends/redis/mailbox.py": (rules.tasks_in_groups,),
    # A command or a run uses one or two parts of a client: only these are loaded.
    "client/definitions.py": (rules.imports_on_top,),
    "client/store_client.py": (rules.imports_on_top,),
    # A process has one role: an embedded engine loads neither services nor triggers.
    "app/wiring.py": (rules.imports_on_top,),
    # One store is opened, and the packages of another one need not be installed.
    "app/stores.py": (rules.imports_on_top,),
    "app/doctor/__init__.py": (rules.imports_on_top,),
    # Until a command imports on top what it uses.
    "cli/commands/batch.py": (rules.size,),
    "cli/commands/run.py": (rules.size,),
    "testing/": (rules.no_assert,),  # the conformance suite is made of tests
    "api/security/tokens.py": (rules.pure,),  # 256 bits that nobody can foresee
    "cli/": (
        rules.imports_on_top,  # cold start: a command imports only what it uses
        rules.no_print,  # it talks to a terminal
    ),
}


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))


@cache
def parse(path: Path) -> Module:
    """Parse a file once for all rules: `name` is its path below the root of the repository."""
    name = path.relative_to(ROOT).as_posix()
    module = Module.of(name, path.read_text(encoding="utf-8"))
    gc.freeze()  # no tree is ever garbage: looking for some took more than half of the time
    return module


def find_problems(rule: Rule, path: Path) -> Iterator[str]:
    module = parse(path)
    yield from (f"{module.name}: {problem}" for problem in rule(module))


def is_covered(path: Path, place: str) -> bool:
    """Return whether an exemption for `place` covers the file."""
    return path.is_relative_to(SOURCE / place) if place.endswith("/") else path == SOURCE / place


def files_without_exemption(rule: Rule) -> Iterator[Path]:
    places = [place for place, exempt in EXEMPT.items() if rule in exempt]
    for folder in FOLDERS[rule]:
        for path in sorted(folder.rglob("*.py")):
            if not any(is_covered(path, place) for place in places):
                yield path


@pytest.mark.parametrize("rule", FOLDERS, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule: Rule) -> None:
    problems = [
        problem for path in files_without_exemption(rule) for problem in find_problems(rule, path)
    ]

    assert not problems, "\n".join(problems)


def test_every_exemption_names_something_that_exists() -> None:
    assert [place for place in EXEMPT if not (SOURCE / place).exists()] == []


def test_every_exemption_is_still_needed() -> None:
    needless = [
        f"{place}: {rule.__name__}"
        for place, exempt in EXEMPT.items()
        for rule in exempt
        if not any(
            any(find_problems(rule, path))
            for path in SOURCE.rglob("*.py")
            if is_covered(path, place)
        )
    ]

    assert needless == []
