"""Rules of the whole suite: each part has a time budget, and every skipped part is reported."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import NoReturn

import hypothesis
import pytest

from runnel.app.private_servers.redis import RedisServer
from tests.fork_server import stop_fork_server
from tests.redis_server import flush_server

pytest.register_assert_rewrite("runnel.testing")
pytest_plugins = ["tests.certificates", "tests.servers"]
# No deadlines: on a busy machine any example may take a second.
hypothesis.settings.register_profile("whole", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)  # for make check
hypothesis.settings.load_profile("whole")

# Seconds of test time in each folder of tests/, added up over all workers. The folders run in this
# order. An idle worker takes tests from the end of another worker's list, so quick tests come last.
BUDGET_S = {
    "simulation": 430,
    "performance": 30,
    "chaos": 105,
    "docs": 100,
    "e2e": 360,
    "integration": 430,
    "property": 75,
    "conformance": 105,
    "architecture": 25,
    "unit": 60,
}
# A part over its budget is reported. Over this multiple of it the run fails: a busy machine alone
# does not explain that.
SLACK = 2.0
MISSING = "missing part: "

MissingPart = Callable[[str, str], NoReturn]


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts pytest in the background makes it and its children ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # only the controller sees every report
        factor = float(os.environ.get("RUNNEL_BUDGET_FACTOR", "1"))
        is_strict = os.environ.get("CI", "").lower() in {"1", "true"}
        config.pluginmanager.register(TimeBudget(factor=factor, is_strict=is_strict), "ledger")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects the tests without garbage collection, which took 20 % of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {part: place for place, part in enumerate(BUDGET_S)}
    items.sort(key=lambda item: places.get(get_part(item.nodeid), len(places)))


@pytest.fixture(scope="session", autouse=True)
def no_forks_left() -> Iterator[None]:
    yield
    stop_fork_server()


@pytest.fixture(scope="session")
def missing_part() -> MissingPart:
    """`missing_part(name, why)` skips a test whose server or binary is not available.

    The end of the run lists the name in bold, and with CI=true the run fails.
    """

    def skip(name: str, why: str) -> NoReturn:
        pytest.skip(f"{MISSING}{name}: {why}")

    return skip


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str | None:
    """Returns the URL of an empty Redis if the test's parameter `kind` is redis, else None."""
    if request.node.callspec.params["kind"] != "redis":
        return None
    server: RedisServer = request.getfixturevalue("shared_redis")
    flush_server(server)
    return server.url


class TimeBudget:
    """Adds up the time of each part, and fails a run that is far over a budget."""

    def __init__(self, *, factor: float, is_strict: bool) -> None:
        self._factor = factor
        self._is_strict = is_strict
        self._spent_s: Counter[str] = Counter()
        self._missing: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent_s[get_part(report.nodeid)] += report.duration  # type: ignore[assignment]  # Counter adds floats too
        self._note_missing(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note_missing(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.is_failure():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.over_budget():
            terminalreporter.write_line(f"BUDGET: {line}", red=True, bold=True)
        verdict = " (a failure, because CI=true)" if self._is_strict else ""
        for name in sorted(self._missing):
            terminalreporter.write_line(f"NOT TESTED: {name}{verdict}", yellow=True, bold=True)

    def is_failure(self) -> bool:
        is_over = bool(self.over_budget(slack=SLACK))
        return is_over or (self._is_strict and bool(self._missing))

    def over_budget(self, *, slack: float = 1.0) -> list[str]:
        """Returns one sentence for each part that exceeded its budget or has none."""
        return [
            line
            for part, spent_s in sorted(self._spent_s.items())
            if (line := self._verdict(part, spent_s, slack)) is not None
        ]

    def _verdict(self, part: str, spent_s: float, slack: float) -> str | None:
        if part not in BUDGET_S:
            return f"tests/{part} has no budget: give it one in tests/conftest.py"
        allowed_s = BUDGET_S[part] * self._factor * slack
        if spent_s > allowed_s:
            return f"tests/{part} took {spent_s:.1f} s, it may take {allowed_s:.0f} s"
        return None

    def _note_missing(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            _, marker, reason = report.longrepr[2].partition(MISSING)
            if marker:
                self._missing.add(reason)


def get_part(nodeid: str) -> str:
    """Returns the folder of tests/ that contains the test."""
    return nodeid.removeprefix("tests/").partition("/")[0]
