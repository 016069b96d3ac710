"""Each rule finds the code that it forbids, and no other code."""

from tests.architecture import rules
from tests.architecture.rules import Module, Rule

parse = Module.of

BROKEN: list[tuple[Rule, str]] = [
    (rules.size, "\n" * (rules.FILE_LINES_MAX + 1)),
    (rules.size, "def f():\n" + "    x = 1\n" * rules.FUNCTION_LINES_MAX),
    (rules.parameters, "def f(a, b, c, d, e, f): ..."),
    (rules.pure, "import time\ntime.time()"),
    (rules.pure, "import time as t\nclock = t.monotonic"),
    (rules.pure, "from datetime import datetime\ndatetime.now()"),
    (rules.pure, "import datetime as dt\ndt.datetime.now(dt.UTC)"),
    (rules.pure, "from asyncio import wait_for\nwait_for(x, 1)"),
    (rules.pure, "import random\nrandom.Random()"),
    (rules.pure, "import random\nrandom.random()"),
    (rules.pure, "import uuid\nuuid.uuid4()"),
    (rules.pure, "import secrets\nsecrets.token_hex()"),
    (rules.pure, "loop.call_later(1, f)"),
    (rules.no_sleep, "import asyncio\nasyncio.sleep(0.1)"),
    (rules.no_sleep, "from time import sleep\nsleep(1)"),
    (rules.tasks_in_groups, "import asyncio\nasyncio.create_task(f())"),
    (rules.tasks_in_groups, "loop.create_task(f())"),
    (rules.no_assert, "assert x"),
    (rules.finished, "# TODO: later"),
    (rules.finished, "raise NotImplementedError"),
    (rules.no_print, "print(1)"),
    (rules.imports_on_top, "def f():\n    import json"),
    (rules.shipped, "from bench.floors.batch import shape_of"),
    (rules.shipped, "import json, bench"),
    (rules.shipped, "def f():\n    if x:\n        import simulation.world as world"),
    (rules.shipped, "if TYPE_CHECKING:\n    from simulation import Simulation"),
    (rules.nothing_swallowed, "try: f()\nexcept: raise"),
    (rules.nothing_swallowed, "try: f()\nexcept Exception: pass"),
    (rules.nothing_swallowed, "try: f()\nexcept (OSError, BaseException): pass"),
    (rules.nothing_swallowed, "with contextlib.suppress(asyncio.CancelledError): f()"),
    (rules.tests_assert, "def test_a(): f()"),
]
FINE: list[tuple[Rule, str]] = [
    (rules.parameters, "def f(self, a, b, c, d, e, *, g, h): ..."),
    (rules.pure, "def f(clock):\n    return clock.time()"),
    (rules.pure, "import time\ntime.strftime"),
    (rules.pure, "import random\nrandom.Random(7)"),
    (rules.pure, "from datetime import timedelta\ntimedelta(1)"),
    (rules.pure, "def f(secrets):\n    return secrets.token"),
    (rules.no_sleep, "import asyncio\nasyncio.sleep(0)"),
    (rules.no_sleep, "program = 'import time; time.sleep(1)'"),
    (rules.tasks_in_groups, "tg.create_task(f())"),
    (rules.tasks_in_groups, "self._group.create_task(f())"),
    (rules.shipped, "from runnel.bench.figures import Figures"),
    (rules.shipped, "from runnel import bench"),
    (rules.shipped, "import benchmarks"),
    (rules.nothing_swallowed, "try: f()\nexcept Exception as error: log(error)"),
    (rules.nothing_swallowed, "with contextlib.suppress(FileNotFoundError): f()"),
    (rules.tests_assert, "def test_a():\n    with pytest.raises(E): f()"),
    (rules.tests_assert, "def test_a(): check_order(f())"),
]


REFUSED_NAMES = ["utils.py", "core/base.py", "manager/__init__.py", "cli/words.py"]


def test_a_rule_finds_forbidden_code() -> None:
    missed = [
        f"{rule.__name__}: {text}"
        for rule, text in BROKEN
        if not any(rule(parse("module.py", text)))
    ]

    assert missed == []


def test_a_rule_accepts_similar_code_that_is_allowed() -> None:
    problems = [
        f"{rule.__name__}: {text}: {problem}"
        for rule, text in FINE
        for problem in rule(parse("module.py", text))
    ]

    assert problems == []


def test_a_file_name_without_meaning_is_refused() -> None:
    accepted = [name for name in REFUSED_NAMES if not any(rules.file_name(parse(name, "")))]

    assert accepted == []
