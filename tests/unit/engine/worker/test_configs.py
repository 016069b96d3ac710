"""Configs are compiled once and resolved to new values each time."""

from typing import Any

import msgspec
import pytest

from runnel.core.templates.errors import TemplateSyntaxError
from runnel.engine.worker.config_templates import COMPILED_CONFIG_BYTES_MAX, compile_config


class Scope:
    def __init__(self, **values: Any) -> None:
        self._values = values

    def lookup(self, root: str) -> Any:
        return self._values[root]


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def test_equal_configs_are_compiled_once() -> None:
    assert compile_config(raw({"a": "{{ x }}"})) is compile_config(raw({"a": "{{ x }}"}))


def test_a_very_large_config_is_not_cached() -> None:
    large = raw({"text": "x" * COMPILED_CONFIG_BYTES_MAX})

    assert compile_config(large) is not compile_config(large)


def test_a_config_knows_the_roots_of_its_templates() -> None:
    config = compile_config(
        raw({"a": "{{ x.y }} {{ input.z }}", "b": ["{{ nodes['n-1'] }}"], "c": 1})
    )

    assert config.roots == {"x", "input", "n-1"}


def test_parts_without_a_template_are_new_in_each_resolution() -> None:
    config = compile_config(raw({"a": [{"b": []}, "{{ x }}"], "c": {"d": {}}, "e": 1}))

    first, second = config.resolve(Scope(x=1)), config.resolve(Scope(x=2))
    first["a"][0]["b"].append(1)
    first["c"]["d"]["k"] = 1

    assert second == {"a": [{"b": []}, 2], "c": {"d": {}}, "e": 1}
    assert config.resolve(Scope(x=3)) == {"a": [{"b": []}, 3], "c": {"d": {}}, "e": 1}


def test_a_config_that_is_not_an_object_is_resolved_too() -> None:
    assert compile_config(raw("{{ x }}")).resolve(Scope(x=[1])) == [1]
    assert compile_config(raw([1, 2])).resolve(Scope()) == [1, 2]


def test_an_invalid_template_is_refused() -> None:
    with pytest.raises(TemplateSyntaxError):
        compile_config(raw({"a": "{{ 1 + }}"}))
