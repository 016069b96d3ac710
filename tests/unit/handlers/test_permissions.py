"""Permissions: functions by module, programs by name, addresses by network."""

import sys
from pathlib import Path

import pytest

from runnel.app.wiring import build_local_handlers, build_server_handlers
from runnel.engine.clock import RealClock
from runnel.errors import NotAllowedError, ProgramNotFoundError, ServiceRefusedError
from runnel.handlers import create_builtin_registry
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import AddressPermissions, FunctionPermissions, ProgramPermissions
from runnel.settings.model import Settings
from tests.unit.engine.worker.worker_harness import WorkerHarness

HERE = "tests.unit.handlers.test_permissions"


def answer() -> int:
    return 42


def planned(functions: FunctionPermissions, name: str) -> object:
    plan = create_builtin_registry(HandlerEnvironment(functions=functions)).get("python").plan
    return plan({"function": name}).function()


@pytest.mark.parametrize("entry", ["*", f"{HERE}:answer", f"{HERE}:*", "tests.*", "tests.unit.*"])
def test_an_allowed_function_is_called(entry: str) -> None:
    assert planned(FunctionPermissions((entry,)), f"{HERE}:answer") == 42


@pytest.mark.parametrize(
    "entries",
    [(), ("tests.unit:*",), ("test.*",), (f"{HERE}:ans",), ("tests.unit.handlers.tes.*",)],
)
def test_any_other_function_is_refused(entries: tuple[str, ...]) -> None:
    with pytest.raises(NotAllowedError) as caught:
        planned(FunctionPermissions(entries), f"{HERE}:answer")

    assert str(caught.value) == (
        f"this worker may not use the function '{HERE}:answer': the operator of the worker has to "
        f"allow it, for example with the option --app {HERE}, or with "
        f"RUNNEL_ALLOW_PYTHON={HERE}:answer"
    )
    assert caught.value.retryable is False


@pytest.mark.parametrize(
    "name", ["sys.exit", "Path.cwd", "create_builtin_registry", "pytest.raises"]
)
def test_functions_that_an_allowed_module_imported_are_refused(name: str) -> None:
    with pytest.raises(NotAllowedError, match="imported as"):
        planned(FunctionPermissions((f"{HERE}:*",)), f"{HERE}:{name}")


def test_the_python_files_of_a_folder_are_allowed_also_those_that_are_added_later(
    tmp_path: Path,
) -> None:
    functions = FunctionPermissions((), folder=tmp_path)
    names = ["late:work", "later.deep:work", "late.deep:work", "../late:work", "os:system"]
    before = [name for name in names if is_allowed(functions, name)]

    (tmp_path / "late.py").touch()
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "__init__.py").touch()

    assert before == []
    assert [name for name in names if is_allowed(functions, name)] == names[:2]


def is_allowed(functions: FunctionPermissions, name: str) -> bool:
    try:
        functions.check_name(name)
    except NotAllowedError:
        return False
    return True


def test_a_module_is_not_imported_before_it_is_allowed() -> None:
    sys.modules.pop("this", None)

    with pytest.raises(NotAllowedError):
        planned(FunctionPermissions(("json:dumps",)), "this:s")

    assert "this" not in sys.modules


async def test_a_worker_of_a_server_runs_only_what_its_settings_allow() -> None:
    stage = WorkerHarness(RealClock())
    stage.handlers = build_server_handlers(Settings(), stage.clock)

    failed = await stage.error(stage.task("python", {"function": f"{HERE}:answer"}))

    assert "RUNNEL_ALLOW_PYTHON" in failed.error.message
    assert failed.error.retryable is False


@pytest.mark.parametrize(
    ("settings", "is_allowed"),
    [
        (Settings(), False),
        (Settings(allowed_functions=("*",)), True),
        (Settings(allowed_functions=(f"{HERE}:answer",)), True),
        (Settings(allowed_functions=()), False),
    ],
)
async def test_on_servers_nothing_is_allowed_by_default(
    settings: Settings, is_allowed: bool
) -> None:
    plan = build_server_handlers(settings, RealClock()).get("python").plan
    if is_allowed:
        assert plan({"function": f"{HERE}:answer"}).function() == 42
    else:
        with pytest.raises(NotAllowedError):
            plan({"function": f"{HERE}:answer"})


def test_functions_of_the_app_module_are_allowed() -> None:
    plan = build_server_handlers(Settings(), RealClock(), app_modules=[HERE]).get("python").plan

    assert plan({"function": f"{HERE}:answer"}).function() == 42
    with pytest.raises(NotAllowedError):
        plan({"function": f"{HERE}:sys.exit"})


def test_tasks_that_the_app_imported_are_allowed() -> None:
    handlers = build_server_handlers(
        Settings(), RealClock(), app_modules=["flows"], app_tasks=[f"{HERE}:answer"]
    )
    plan = handlers.get("python").plan

    assert plan({"function": f"{HERE}:answer"}).function() == 42
    with pytest.raises(NotAllowedError):
        plan({"function": f"{HERE}:other"})


def test_on_the_users_machine_everything_is_allowed_by_default() -> None:
    everything = build_local_handlers(Settings(), RealClock())
    less = build_local_handlers(Settings(allowed_programs=("ls",)), RealClock())

    assert everything.get("python").plan({"function": f"{HERE}:answer"}).function() == 42
    everything.get("shell").plan({"command": ["cat"]})
    with pytest.raises(NotAllowedError, match="RUNNEL_ALLOW_SHELL=cat"):
        less.get("shell").plan({"command": ["cat"]})


def test_programs_are_searched_in_the_workers_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ProgramPermissions(("tool",)).find("tool", cwd=Path("/")) == str(tmp_path / "tool")
    assert ProgramPermissions().find("./tool", cwd=tmp_path) == str(tmp_path / "tool")
    with pytest.raises(ProgramNotFoundError, match="there is no program 'nothing' on this worker"):
        ProgramPermissions().find("nothing", cwd=tmp_path)
    with pytest.raises(NotAllowedError):
        ProgramPermissions(("tool",)).find("./tool", cwd=tmp_path)


def test_a_relative_path_entry_does_not_refer_to_the_cwd_of_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("workers", "others"):
        tool = tmp_path / folder / "bin" / "tool"
        tool.parent.mkdir(parents=True)
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.chdir(tmp_path / "workers")
    monkeypatch.setenv("PATH", "bin")

    path = ProgramPermissions(("tool",)).find("tool", cwd=tmp_path / "others")

    assert path == str(tmp_path / "workers" / "bin" / "tool")


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "PATH", "SHELLOPTS", "PS4", "BASH_ENV", "HOME", "MANPAGER", "PYTHONPATH"),
        *("PERL5OPT", "NODE_OPTIONS", "GIT_SSH_COMMAND", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"),
    ],
)
def test_with_restricted_programs_variables_that_load_code_are_refused(name: str) -> None:
    ProgramPermissions().check_variables([name])
    ProgramPermissions(("echo",)).check_variables(["LC_ALL", "TZ", "YEAR", "API_KEY", "REPORT"])

    with pytest.raises(NotAllowedError, match=f"variable '{name}': .* RUNNEL_ALLOW_SHELL=all"):
        ProgramPermissions(("echo",)).check_variables(["LC_ALL", name])


PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"]
PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fd00::1",
    "ff02::1",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "64:ff9b::10.0.0.1",
    "2002:a00:1::",
    "192.0.0.8",
    "64:ff9b:1::a00:1",
    "fec0::1",
]
METADATA = [
    *("169.254.169.254", "fe80::1%eth0", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200"),
    *("168.63.129.16", "192.0.0.192", "::ffff:168.63.129.16"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    allowed = AddressPermissions()
    allowed.check("host", address)

    assert allowed.entries == ()


@pytest.mark.parametrize("address", [*PRIVATE, *METADATA])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ServiceRefusedError, match="RUNNEL_ALLOW_PRIVATE_ADDRESSES=host"):
        AddressPermissions().check("host", address)


@pytest.mark.parametrize("address", METADATA)
def test_all_private_addresses_do_not_include_metadata_services(address: str) -> None:
    with pytest.raises(ServiceRefusedError):
        AddressPermissions(("*",)).check("host", address)


@pytest.mark.parametrize(
    ("entry", "host", "address"),
    [
        ("*", "host", "10.0.0.1"),
        ("10.0.0.0/8", "host", "10.9.9.9"),
        ("10.0.0.0/8", "host", "::ffff:10.9.9.9"),
        ("::1", "host", "::1"),
        ("DB.internal", "db.Internal.", "10.0.0.1"),
        ("169.254.169.254", "host", "169.254.169.254"),
    ],
)
def test_addresses_that_the_operator_names_are_allowed(entry: str, host: str, address: str) -> None:
    allowed = AddressPermissions((entry,))
    allowed.check(host, address)

    with pytest.raises(ServiceRefusedError):
        allowed.check("other", "169.254.1.1")
