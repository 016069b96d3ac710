"""`--app` loads the user's registry, or is refused with one sentence."""

import sys
from pathlib import Path

import pytest

from runnel.authoring.registry import AppError, HandlerRegistry, list_app_tasks, load_app
from runnel.errors import InputError
from runnel.handlers import create_builtin_registry

APP = """
from runnel import HandlerRegistry
handlers = HandlerRegistry()
alias = handlers

@handlers.handler("resize")
def resize(config, ctx):
    return config

class Holder:
    inner = handlers
not_a_registry = 7
"""
FILES = {
    "one_app": APP,
    "two_apps": "from runnel import HandlerRegistry\na, b = HandlerRegistry(), HandlerRegistry()",
    "no_app": "x = 1",
    "raising_app": "raise ValueError('not today')",
    "leaving_app": "raise SystemExit(3)",
    "tasks_app": "from runnel import task\n@task\ndef one(): ...",
    "flow_app": "import tasks_app\nfrom runnel import task\nfrom tasks_app import one\n"
    "@task\ndef two(): ...\nagain = two",
    "importing_app": "import os\nimport tasks_app as shop",
    "needing_app": "import something_that_is_not_there",
}


@pytest.fixture(autouse=True)
def apps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("name", ["one_app:handlers", "one_app:Holder.inner", "one_app"])
def test_an_app_is_a_registry_by_name_or_the_only_one_of_a_module(name: str) -> None:
    assert load_app(name).names() == ["resize"]


@pytest.mark.parametrize("name", ["tasks_app", "tasks_app:one"])
def test_a_module_with_tasks_only_needs_no_registry(name: str) -> None:
    assert load_app(name).names() == []
    assert list_app_tasks(name) == ["tasks_app:one"]


def test_the_tasks_of_an_app_include_imported_tasks() -> None:
    assert list_app_tasks("flow_app") == ["flow_app:two", "tasks_app:one"]


def test_an_app_may_only_import_the_modules_of_its_tasks() -> None:
    assert load_app("importing_app").names() == []
    assert list_app_tasks("importing_app") == ["tasks_app:one"]


def test_an_app_may_import_a_module_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / "package_of_app"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text("from runnel import task\n@task\ndef one(): ...")
    (tmp_path / "package_app.py").write_text("import package_of_app.tasks")

    assert load_app("package_app").names() == []
    assert list_app_tasks("package_app") == ["package_of_app.tasks:one"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "--app: expected MODULE or MODULE:NAME, got ''"),
        ("one_app:", "--app: expected MODULE or MODULE:NAME, got 'one_app:'"),
        ("nowhere:x", "--app: there is no module 'nowhere'; Python searched "),
        ("needing_app", "'something_that_is_not_there', which 'needing_app' imports; "),
        ("raising_app", "--app: importing 'raising_app' raised ValueError: not today"),
        ("leaving_app", "--app: importing 'leaving_app' raised SystemExit: 3"),
        ("one_app:nothing", "--app: module 'one_app' has no 'nothing'; expected a HandlerRegistry"),
        ("one_app:not_a_registry", "to be a HandlerRegistry, a task or a workflow, got a int"),
        (
            "no_app",
            "a task or a workflow in module 'no_app' or in a module that it imports",
        ),
        ("two_apps", "expected one HandlerRegistry in module 'two_apps', found 2; choose one"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_refused_with_a_reason(name: str, sentence: str) -> None:
    with pytest.raises(AppError) as raised:
        load_app(name)

    assert sentence in str(raised.value)


def test_including_a_registry_adds_its_handlers_and_refuses_a_taken_name() -> None:
    mine = HandlerRegistry()
    mine.register("resize", lambda config, _ctx: config)
    both = create_builtin_registry()
    both.include(mine)
    both.include(mine)
    both.include(create_builtin_registry())
    other = HandlerRegistry()
    other.register("python", lambda config, _ctx: config)

    assert {"resize", "python"} <= set(both.names())
    with pytest.raises(InputError, match="handler name 'python' is taken by"):
        both.include(other)
