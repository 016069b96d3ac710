"""`runnel cancel` ends an execution that no process runs, unless clean-up nodes remain."""

import asyncio
from pathlib import Path

import pytest

from runnel.app.wiring import build_engine
from runnel.backends.sqlite.store import SqliteStore
from runnel.cli.commands import cancel
from runnel.cli.main import run_command
from runnel.core.ids import ExecutionId
from runnel.core.run_when import RunWhen
from runnel.errors import StoreError
from runnel.settings.model import Settings
from tests.core_driver import make_node, make_workflow

TIDIED = make_workflow(
    make_node("approve", handler="wait_for_signal", config={"signal": "approve"}),
    make_node("tidy", "approve", handler="output", run_when=RunWhen.ALL_SETTLED),
)


async def _submit(data_dir: Path) -> ExecutionId:
    engine = await build_engine(Settings(data_dir=data_dir))
    try:
        await engine.claim_home_partition()
        return await engine.client.submit(TIDIED)
    finally:
        await engine.backend.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "execution {} is cancelled, but its clean-up has to run; continue with: "),
        (["--force"], "execution {} is cancelled\n"),
    ],
)
def test_force_also_ends_clean_up_nodes(
    options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execution_id = asyncio.run(_submit(tmp_path))

    code = run_command(["cancel", "@last", *options, "--data-dir", str(tmp_path)])

    assert code == 0
    assert capsys.readouterr().out.startswith(sentence.format(execution_id))


def test_an_execution_is_not_reported_as_cancelled_if_the_command_was_not_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_store: SqliteStore, *_arguments: object, **_options: object) -> None:
        raise StoreError("the database is locked")

    monkeypatch.setattr(SqliteStore, "acquire", refused)
    monkeypatch.setattr(cancel, "APPLY_TIMEOUT_S", 0.05)
    execution_id = asyncio.run(_submit(tmp_path))

    code = run_command(["cancel", "@last", "--data-dir", str(tmp_path)])

    sentence = f"execution {execution_id} will be cancelled as soon as a process runs it; continue"
    assert code == 0
    assert capsys.readouterr().out.startswith(sentence)


def test_help_explains_force(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["cancel", "--help"])

    printed = " ".join(capsys.readouterr().out.split())
    assert code == 0
    assert "--force" in printed
    assert "Also cancel clean-up nodes." in printed
