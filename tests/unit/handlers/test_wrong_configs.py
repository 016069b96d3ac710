"""A wrong config is refused with one sentence: at submit, or by the worker after templates."""

from typing import Any

import pytest

from runnel.core.validation import find_problems
from runnel.core.workflow import Workflow
from runnel.errors import InputError
from runnel.handlers import create_builtin_registry
from tests.core_driver import make_node
from tests.unit.handlers.wrong_configs import WRONG


@pytest.mark.parametrize(("handler", "config", "sentence"), WRONG)
def test_a_wrong_config_is_refused_at_submit(
    handler: str, config: dict[str, Any], sentence: str
) -> None:
    wrong = Workflow(name="w", nodes=(make_node("a", handler=handler, config=config),))

    assert list(find_problems(wrong)) == [f"node 'a': {sentence}"]


@pytest.mark.parametrize(("handler", "config", "sentence"), WRONG)
def test_a_wrong_config_made_by_templates_is_refused_by_the_worker(
    handler: str, config: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        create_builtin_registry().get(handler).plan(config)

    assert str(caught.value) == f"handler '{handler}': {sentence}"
    assert caught.value.retryable is False


TEMPLATES = [
    ("external_service", {"url": "{{ input.url }}", "headers": {"X": "{{ input.x }}"}}),
    ("external_service", {"mock": "{{ input.mock }}", "timeout_seconds": "{{ input.t }}"}),
    ("external_service", {"mock": {"delay": "{{ input.delay }}"}}),
    ("llm_service", {"model": "m", "messages": "{{ input.messages }}"}),
    ("shell", {"command": "{{ input.command }}", "shell": "{{ input.shell }}"}),
    ("shell", {"command": "{{ input.command }}"}),
    ("shell", {"command": ["echo", "{{ input.x }}"], "env": {"A": "{{ input.a }}"}}),
]


@pytest.mark.parametrize(("handler", "config"), TEMPLATES)
def test_a_value_with_a_template_is_not_checked_at_submit(
    handler: str, config: dict[str, Any]
) -> None:
    fine = Workflow(name="w", nodes=(make_node("a", handler=handler, config=config),))

    assert list(find_problems(fine)) == []


def test_a_text_from_a_template_is_not_passed_to_a_shell() -> None:
    with pytest.raises(InputError, match="a text needs shell: true"):
        create_builtin_registry().get("shell").plan({"command": "echo {{ x }}"})


def test_a_missing_cwd_is_refused_with_its_name() -> None:
    with pytest.raises(InputError, match=r"config\.cwd: there is no directory '/no/such/place'"):
        create_builtin_registry().get("shell").plan({"command": ["ls"], "cwd": "/no/such/place"})
