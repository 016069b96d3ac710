"""The queues that a worker takes tasks from."""

import pytest

from runnel.authoring.registry import HandlerRegistry
from runnel.cli.session.server_roles import parse_queues
from runnel.handlers import create_builtin_registry
from runnel.settings.model import Settings


async def work(config: object, ctx: object) -> None:
    """A handler that no test calls."""


@pytest.fixture
def handlers() -> HandlerRegistry:
    registry = HandlerRegistry()
    registry.register("pay", work)
    registry.register("bill", work)
    return registry


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        pytest.param(None, ["tasks:bill", "tasks:pay"], id="those of its handlers"),
        pytest.param("gpu", ["tasks:gpu"], id="one that is named"),
        pytest.param("pay, tasks:gpu,pay", ["tasks:pay", "tasks:gpu"], id="each once"),
    ],
)
def test_a_worker_takes_the_queues_of_its_handlers_unless_queues_are_given(
    handlers: HandlerRegistry, text: str | None, queues: list[str]
) -> None:
    assert parse_queues(text, handlers, Settings(), None) == queues


@pytest.mark.parametrize(
    ("apps", "allowed", "takes_python"),
    [
        (None, None, False),
        (None, (), False),
        (["shop"], None, True),
        (None, ("shop:*",), True),
    ],
)
def test_a_worker_that_allows_no_function_does_not_take_the_queue_python(
    apps: list[str] | None, allowed: tuple[str, ...] | None, *, takes_python: bool
) -> None:
    settings = Settings(allowed_functions=allowed)

    queues = parse_queues(None, create_builtin_registry(), settings, apps)

    assert ("tasks:python" in queues) is takes_python
    assert "tasks:shell" in queues
