"""Shell completion of commands, execution ids and workflow names."""

from pathlib import Path

import pytest

from tests.e2e.program import Program

pytestmark = pytest.mark.e2e


def complete(program: Program, line: str, **environment: str) -> list[str]:
    """Returns the candidates that bash gets for the last word."""
    done = program.run(
        _RUNNEL_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
        **environment,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_ids_and_workflows_are_completed(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.run("run", "chain.json")
    (document,) = program.documents("list")
    execution_id = document["execution_id"]

    assert complete(program, "runnel workf") == ["workflows"]
    assert complete(program, "runnel dlq p") == ["purge"]
    assert complete(program, f"runnel show {execution_id[:4]}") == [execution_id]
    assert complete(program, "runnel show @") == ["@last"]
    assert complete(program, "runnel workflows c") == ["chain"]


def test_nothing_is_completed_without_a_data_directory(tmp_path: Path) -> None:
    program = Program(tmp_path)

    assert complete(program, "runnel show 0") == []
    assert complete(program, "runnel show 0", REDIS_URL="redis://localhost:1/0") == []
    assert complete(program, "runnel show 0", REDIS_URL="nonsense") == []
    assert not (tmp_path / ".runnel").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_names_the_program(tmp_path: Path, shell: str) -> None:
    # Otherwise Typer detects the shell that started the tests and ignores the named one.
    undetected = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    done = Program(tmp_path).run("--show-completion", shell, **undetected)

    assert done.returncode == 0
    assert f"_RUNNEL_COMPLETE=complete_{shell}" in done.stdout
