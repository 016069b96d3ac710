"""HandlerRegistry: users register their own handlers."""

import functools
from pathlib import Path
from typing import Any

import pytest

from runnel.authoring.calls import Mode, is_async, resolve_mode
from runnel.authoring.context import Context
from runnel.authoring.functions import NotImportableError, get_import_name, import_function
from runnel.authoring.registry import HandlerRegistry
from runnel.errors import HandlerNotFoundError, InputError


async def asynchronous(config: Any, ctx: Context) -> None:
    """Does nothing, later."""


def synchronous(config: Any, ctx: Context) -> None:
    """Does nothing, now."""


class Callable:
    async def __call__(self, config: Any, ctx: Context) -> None:
        """Does nothing, as an object."""


def test_the_decorator_registers_a_function_and_returns_it_unchanged() -> None:
    registry = HandlerRegistry()

    @registry.handler("resize")
    def resize(config: Any, ctx: Context) -> int:
        return 1

    assert resize(None, None) == 1  # type: ignore[arg-type]  # it reads neither argument
    assert "resize" in registry
    assert registry.get("resize").plan({"w": 1}).positional == ({"w": 1},)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sleep", "reserved"),
        ("workflow", "reserved"),
        ("taken", "is taken by"),
        ("", "without leading or trailing spaces"),
        (" padded", "without leading or trailing spaces"),
    ],
)
def test_an_invalid_or_taken_handler_name_is_refused(name: str, sentence: str) -> None:
    registry = HandlerRegistry()
    registry.register("taken", synchronous)

    with pytest.raises(InputError, match=sentence):
        registry.register(name, asynchronous)


def test_a_handler_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(InputError, match="expected a function, got 3"):
        HandlerRegistry().register("x", 3)  # type: ignore[arg-type]  # the mistake under test


def test_the_error_for_an_unknown_handler_lists_the_known_ones() -> None:
    registry = HandlerRegistry()
    registry.register("b", synchronous)
    registry.register("a", synchronous)

    with pytest.raises(HandlerNotFoundError, match="'c'; this worker knows: a, b"):
        registry.get("c")


@pytest.mark.parametrize(
    ("function", "mode"),
    [
        (asynchronous, Mode.LOOP),
        (synchronous, Mode.THREAD),
        (functools.partial(asynchronous, {}), Mode.LOOP),
        (Callable(), Mode.LOOP),
        (print, Mode.THREAD),
    ],
)
def test_mode_auto_is_the_loop_for_async_functions_and_a_thread_for_others(
    function: Any, mode: Mode
) -> None:
    assert resolve_mode(function, "auto") is mode
    assert is_async(function) is (mode is Mode.LOOP)


def test_the_error_for_an_unknown_mode_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="auto, loop, thread, process, got 'fibre'"):
        resolve_mode(synchronous, "fibre")


@pytest.mark.parametrize("function", [lambda _config, _ctx: 1, functools.partial(synchronous)])
def test_mode_process_needs_a_function_that_can_be_imported(function: Any) -> None:
    with pytest.raises(InputError, match="top level of a module"):
        HandlerRegistry().register("x", function, mode="process")


def test_a_function_is_imported_by_its_name() -> None:
    assert import_function(get_import_name(functools.reduce)) is functools.reduce
    assert import_function("pathlib:Path.cwd")() == import_function("pathlib:Path").cwd()  # type: ignore[attr-defined]  # a class


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("json", "expected a function as 'module:name', such as 'reports.daily:build', got 'json'"),
        (":dumps", "expected a function"),
        ("nosuchmodule:f", "there is no module 'nosuchmodule'"),
        ("json:nosuch", "'json' has no 'nosuch'"),
        ("string:digits", "is a str, expected a function"),
    ],
)
def test_a_failed_import_is_explained_and_not_retried(name: str, sentence: str) -> None:
    with pytest.raises(NotImportableError, match=sentence) as caught:
        import_function(name)

    assert caught.value.retryable is False


def test_a_module_that_raises_system_exit_does_not_end_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving_steps.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(NotImportableError, match="importing 'leaving_steps' raised SystemExit: 3"):
        import_function("leaving_steps:run")
