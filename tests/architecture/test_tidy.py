"""The shape of the code, as house rules that fail when they are broken."""

from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.rules import Module, Rule

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "runnel"
TESTS = ROOT / "tests"

EVERYWHERE: tuple[Rule, ...] = (
    rules.size,
    rules.parameters,
    rules.file_name,
    rules.nothing_swallowed,
    rules.tests_assert,
)
IN_SOURCE: tuple[Rule, ...] = (
    *EVERYWHERE,
    rules.pure,
    rules.tasks_in_groups,
    rules.no_assert,
    rules.finished,
    rules.no_print,
    rules.imports_on_top,
    rules.shipped,
)
IN_TESTS: tuple[Rule, ...] = (*EVERYWHERE, rules.no_sleep)

# Where a rule does not hold, and why. A path ending in a slash stands for the folder.
EXEMPT: dict[str, tuple[Rule, ...]] = {
    "engine/clock.py": (rules.pure,),  # the one real clock, ids and randomness
    # Its patience with a server is asyncio's own: connecting, and one alarm for all that is asked.
    "backends/redis/connection.py": (rules.pure,),
    # For handlers of a program that has no clock for them.
    "handlers/permissions.py": (rules.pure,),
    # These take 45 ms, and httpx takes 110: only who calls something pays.
    "handlers/__init__.py": (rules.imports_on_top,),
    "handlers/http/__init__.py": (rules.imports_on_top,),
    "core/templates/parser.py": (rules.imports_on_top,),  # Jinja takes 60 ms: only with templates
    "authoring/documents/files.py": (rules.imports_on_top,),  # yaml takes 40 ms: only with YAML
    "authoring/input_schema.py": (rules.imports_on_top,),  # jsonschema takes 150 ms
    # Together 11 ms (2026-11), in every process that may have schedules: only who has one pays.
    "triggers/ticks.py": (rules.imports_on_top,),
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
    # One store is opened, and the packages of another one need not be installed.
    "app/stores.py": (rules.imports_on_top,),
    "app/doctor/__init__.py": (rules.imports_on_top,),
    "__init__.py": (rules.imports_on_top,),  # public names are imported when they are used
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


def rules_for(name: str) -> list[Rule]:
    exempt = [
        rule
        for place, exempted in EXEMPT.items()
        if name == place or (place.endswith("/") and name.startswith(place))
        for rule in exempted
    ]
    return [rule for rule in IN_SOURCE if rule not in exempt]


@pytest.mark.parametrize("name", files_below(SOURCE))
def test_a_source_file_is_tidy(name: str) -> None:
    module = Module.of(name, (SOURCE / name).read_text(encoding="utf-8"))
    problems = rules.problems(module, rules_for(name))

    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", files_below(TESTS))
def test_a_test_file_is_tidy(name: str) -> None:
    module = Module.of(name, (TESTS / name).read_text(encoding="utf-8"))
    problems = rules.problems(module, IN_TESTS)

    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("place", EXEMPT)
def test_an_exemption_names_something_that_exists(place: str) -> None:
    assert (SOURCE / place).exists()
