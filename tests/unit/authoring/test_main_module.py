"""The import name of a module, also if it is `__main__` in this process."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from runnel.authoring.functions import (
    find_import_folder,
    get_loaded_module,
    get_main_module_name,
    import_function,
    resolve_function_name,
)
from runnel.authoring.python_paths import parse_python_path
from runnel.errors import InputError


def script(
    monkeypatch: pytest.MonkeyPatch, file: str | None, spec: str | None = None
) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = None if spec is None else ModuleSpec(spec, None)
    exec("def build(): return 7\ndef other(): ...", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


@pytest.mark.parametrize(
    ("file", "spec", "name", "folder"),
    [
        ("/code/flow_of_mine.py", None, "flow_of_mine", "/code"),
        ("/code/app/flow.py", "app.flow", "app.flow", "/code"),
        ("/code/app/__main__.py", "app.__main__", "app.__main__", "/code"),
        ("/usr/bin/runnel", None, None, None),
        ("/code/my-flow.py", None, None, None),
        (None, None, None, None),
    ],
)
def test_the_main_module_is_named_after_its_file(
    monkeypatch: pytest.MonkeyPatch,
    file: str | None,
    spec: str | None,
    name: str | None,
    folder: str | None,
) -> None:
    script(monkeypatch, file, spec)

    assert get_main_module_name() == name
    assert find_import_folder(name or "nowhere") == (folder and Path(folder))


def test_functions_of_the_main_module_are_not_imported_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = script(monkeypatch, "/code/flow_of_mine.py")

    assert resolve_function_name(main.build) == "flow_of_mine:build"
    assert import_function("flow_of_mine:build") is main.build
    assert get_loaded_module("flow_of_mine") is main


def test_an_interactive_session_keeps_the_name_main(monkeypatch: pytest.MonkeyPatch) -> None:
    main = script(monkeypatch, None)

    assert resolve_function_name(main.build) == "__main__:build"
    assert import_function("__main__:build") is main.build


def test_an_import_name_of_another_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    main = script(monkeypatch, "/code/flow_of_mine.py")
    build = main.build
    vars(main)["build"] = main.other

    with pytest.raises(InputError, match="another function as 'flow_of_mine:build'"):
        resolve_function_name(build)


def test_a_module_of_a_package_is_imported_from_the_parent_of_the_package(tmp_path: Path) -> None:
    package = tmp_path / "app" / "flows"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()

    file = parse_python_path(str(package / "report.py:name"))

    assert file is not None
    assert (file.module, file.folder, file.name) == ("app.flows.report", tmp_path.resolve(), "name")
    assert parse_python_path("report.yaml") is None
    assert parse_python_path("C:report.yaml") is None


def test_a_package_is_imported_from_its_parent_folder() -> None:
    import runnel.authoring as package

    folder = find_import_folder(package.__name__)

    assert folder is not None
    assert (folder / "runnel" / "authoring").is_dir()
