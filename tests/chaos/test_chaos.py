"""A small deployment of real processes and servers recovers from faults of its parts."""

import asyncio

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.chaos.run import ChaosPlan, run
from tests.conftest import MissingPart
from tests.servers import require_binary

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.fixture(autouse=True)
def servers(missing_part: MissingPart) -> None:
    require_binary(RedisServer, missing_part)
    require_binary(PostgresServer, missing_part)


@pytest.mark.parametrize(
    "troubles",
    [
        ("kill-worker", "kill-orchestrator", "kill-all-workers", "crash-loop-orchestrator"),
        ("pause-orchestrator", "pause-worker"),
        ("restart-redis", "kill-redis", "restart-postgres"),
        ("wipe-redis", "roll-redis-back"),
    ],
    ids="+".join,
)
def test_all_executions_end_in_the_expected_state(troubles: tuple[str, ...]) -> None:
    report = asyncio.run(run(ChaosPlan(seed=1, executions=120, troubles=troubles)))

    assert report.submitted == 120
    assert report.problems == [], report.text()
