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
)
IN_TESTS: tuple[Rule, ...] = (*EVERYWHERE, rules.no_sleep)

# Where a rule does not hold, and why. A path ending in a slash stands for the folder.
EXEMPT: dict[str, tuple[Rule, ...]] = {
    "runtime/clock.py": (rules.pure,),  # the one real clock, ids and randomness
    # Its patience with a server is asyncio's own: connecting, and one alarm for all that is asked.
    "backends/redis/line.py": (rules.pure,),
    "backends/redis/address.py": (rules.pure,),
    "handlers/loop_time.py": (rules.pure,),  # for handlers of a program that has no clock for them
    # These take 45 ms, and httpx takes 110: only who calls something pays.
    "handlers/outside.py": (rules.imports_on_top,),
    "handlers/http/web.py": (rules.imports_on_top,),
    "core/templates/parse.py": (rules.imports_on_top,),  # Jinja takes 60 ms: only who needs it pays
    "authoring/files.py": (rules.imports_on_top,),  # yaml takes 40 ms: only who writes YAML pays
    "authoring/schema.py": (rules.imports_on_top,),  # jsonschema takes 150 ms: only with `input`
    # Together 11 ms (2026-11), in every process that may have schedules: only who has one pays.
    "triggers/cron.py": (rules.imports_on_top,),
    "triggers/zones.py": (rules.imports_on_top,),
    # The engine that callers share outlives the call that opened it; its last user awaits it.
    "runtime/shared.py": (rules.tasks_in_groups,),
    # The reader of the feed serves listeners who come and go; the last one awaits its end.
    "runtime/newsroom.py": (rules.tasks_in_groups,),
    # A look outlives the request that began it, when the store hangs.
    "api/probes.py": (rules.tasks_in_groups,),
    # A protocol of asyncio has no coroutine that could wait on a clock.
    "api/connections.py": (rules.pure,),
    # A module of tasks is imported by every worker; only who runs a workflow needs an engine.
    "runtime/decorated.py": (rules.imports_on_top,),
    # A call is shared by callers of whom each may give up; its backend ends it.
    "backends/redis/gathering.py": (rules.tasks_in_groups,),
    # One store is opened, and the packages of another one need not be installed.
    "runtime/stores.py": (rules.imports_on_top,),
    "runtime/doctor/examination.py": (rules.imports_on_top,),
    "__init__.py": (rules.imports_on_top,),  # public names are imported when they are used
    "testing/": (rules.no_assert,),  # the conformance suite is made of tests
    "testing/crash_points/__main__.py": (rules.imports_on_top,),  # redis-py is not everybody's
    # It is the time, the chance and the processes that all other code is given, and it reports.
    "testing/simulation/": (rules.pure, rules.tasks_in_groups, rules.no_print),
    "api/security/token_making.py": (rules.pure,),  # 256 bits that nobody can foresee
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
