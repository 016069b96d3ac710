"""A module is named as another process imports it, also when it is `__main__` here."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from runnel.authoring.functions import (
    function_name,
    import_folder,
    loaded_module,
    locate,
    main_name,
)
from runnel.authoring.python_files import python_file
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
def test_a_script_has_the_name_of_its_file(
    monkeypatch: pytest.MonkeyPatch,
    file: str | None,
    spec: str | None,
    name: str | None,
    folder: str | None,
) -> None:
    script(monkeypatch, file, spec)

    assert main_name() == name
    assert import_folder(name or "nowhere") == (folder and Path(folder))


def test_the_functions_of_a_script_are_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    main = script(monkeypatch, "/code/flow_of_mine.py")

    assert function_name(main.build) == "flow_of_mine:build"
    assert locate("flow_of_mine:build") is main.build
    assert loaded_module("flow_of_mine") is main


def test_a_session_without_a_file_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    main = script(monkeypatch, None)

    assert function_name(main.build) == "__main__:build"
    assert locate("__main__:build") is main.build


def test_a_name_that_leads_to_another_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    main = script(monkeypatch, "/code/flow_of_mine.py")
    build = main.build
    vars(main)["build"] = main.other

    with pytest.raises(InputError, match="another function under the name 'flow_of_mine:build'"):
        function_name(build)


def test_a_package_is_imported_from_above(tmp_path: Path) -> None:
    package = tmp_path / "app" / "flows"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()

    file = python_file(str(package / "report.py:name"))

    assert file is not None
    assert (file.module, file.folder, file.name) == ("app.flows.report", tmp_path.resolve(), "name")
    assert python_file("report.yaml") is None
    assert python_file("C:report.yaml") is None


def test_a_package_itself_is_imported_from_above() -> None:
    import runnel.authoring as package

    folder = import_folder(package.__name__)

    assert folder is not None
    assert (folder / "runnel" / "authoring").is_dir()
