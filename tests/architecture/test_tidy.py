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

# Exemptions with their reasons. A path with a slash at its end is a folder.
EXEMPT: dict[str, tuple[Rule, ...]] = {
    "engine/clock.py": (rules.pure,),  # the one real clock, ids and randomness
    # It uses asyncio's time limits: for connecting, and one timer for all calls of a connection.
    "backends/redis/connection.py": (rules.pure,),
    # For handlers in a program without a Clock.
    "handlers/environment.py": (rules.pure,),
    # These take 45 ms, and httpx 110 ms: only tasks that use them import them.
    "handlers/__init__.py": (rules.imports_on_top,),
    "handlers/http/__init__.py": (rules.imports_on_top,),
    "core/templates/parser.py": (rules.imports_on_top,),  # Jinja takes 60 ms: only with templates
    "authoring/documents/files.py": (rules.imports_on_top,),  # yaml takes 40 ms: only with YAML
    "authoring/input_schema.py": (rules.imports_on_top,),  # jsonschema takes 150 ms
    # They name the class UUID as the type of a user's value, and make no ids.
    "authoring/text_formats.py": (rules.pure,),
    "authoring/decorators/member_types.py": (rules.pure,),
    # Together 11 ms (2026-11): only a process with a schedule imports them.
    "triggers/cron.py": (rules.imports_on_top,),
    # The engine that callers share outlives the call that opened it; its last user awaits it.
    "app/shared_resource.py": (rules.tasks_in_groups,),
    # The feed reader serves changing listeners; the last one awaits its end.
    "notify/feed_reader.py": (rules.tasks_in_groups,),
    # A probe outlives its request if the store hangs.
    "api/state.py": (rules.tasks_in_groups,),
    # A protocol of asyncio has no coroutine that could wait on a clock.
    "api/server.py": (rules.pure,),
    # Every worker imports task modules, but only a process that runs a workflow needs an engine.
    "app/executor.py": (rules.imports_on_top,),  # prometheus_client: only with a registry
    "app/decorated.py": (rules.imports_on_top,),
    # Several callers share a call, and each may give up; the backend ends it.
    "backends/redis/mailbox.py": (rules.tasks_in_groups,),
    # A command or a run uses one or two parts of a client: only these are loaded.
    "client/definitions.py": (rules.imports_on_top,),
    "client/store_client.py": (rules.imports_on_top,),
    "app/async_engine.py": (rules.imports_on_top,),
    # A process has one role: an embedded engine loads neither services nor triggers.
    "app/wiring.py": (rules.imports_on_top,),
    # Only the packages of the opened store need to be installed.
    "app/stores.py": (rules.imports_on_top,),
    "app/doctor/__init__.py": (rules.imports_on_top,),
    "testing/": (rules.no_assert,),  # the conformance suite is made of tests
    "api/security/tokens.py": (rules.pure,),  # tokens need secure randomness
    "cli/": (rules.no_print,),  # it prints to a terminal
    # `--version` and `--help` import no asyncio, traceback or command.
    "cli/command_group.py": (rules.imports_on_top,),
    "cli/errors.py": (rules.imports_on_top,),
    "cli/options.py": (rules.imports_on_top,),  # only a shell's completion opens a store
    # rich takes 37 ms: only on a terminal.
    "cli/commands/top.py": (rules.imports_on_top,),
    "cli/render/text.py": (rules.imports_on_top,),
    "cli/render/progress_view.py": (rules.imports_on_top,),
    "cli/session/batch_run.py": (rules.imports_on_top,),
    # yaml takes 40 ms: only for YAML.
    "cli/commands/files.py": (rules.imports_on_top,),
    "cli/commands/workflows.py": (rules.imports_on_top,),
    "cli/commands/run.py": (rules.imports_on_top,),  # a local run follows no remote execution
    "cli/session/unfinished.py": (rules.imports_on_top,),  # a list of plain JSON needs no builder
    # The packages of servers need not be installed.
    "cli/commands/bench.py": (rules.imports_on_top,),
    "cli/commands/dev.py": (rules.imports_on_top,),
    # One client is opened; HTTP takes 110 ms, the engine and the API are as heavy.
    "cli/session/open_client.py": (rules.imports_on_top,),
    "cli/session/run_locally.py": (rules.imports_on_top,),
    "cli/session/inputs.py": (rules.imports_on_top,),
    "cli/session/server_roles.py": (rules.imports_on_top,),
}


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.py"))


@cache
def parse(path: Path) -> Module:
    """Parses a file once for all rules; `name` is its path below the root."""
    name = path.relative_to(ROOT).as_posix()
    module = Module.of(name, path.read_text(encoding="utf-8"))
    gc.freeze()  # trees are never garbage; collecting took more than half of the time
    return module


def find_problems(rule: Rule, path: Path) -> Iterator[str]:
    module = parse(path)
    yield from (f"{module.name}: {problem}" for problem in rule(module))


def is_covered(path: Path, place: str) -> bool:
    """Returns whether an exemption for `place` covers the file."""
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


def test_every_exemption_names_an_existing_path() -> None:
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
