"""`--server`: every command prints the same over HTTP as directly on the store."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runnel import SyncClient
from runnel.client.dead_letters import LettersOf
from runnel.errors import WrongStateError
from runnel.ports.archive import ExecutionFilter
from runnel.settings.variables import VARIABLES
from tests.e2e.dev_server import DevServer, dev_server
from tests.e2e.program import FLOWS
from tests.e2e.store_and_server import StoreAndServer
from tests.e2e.test_cli_dlq import FLOW as PARSING
from tests.e2e.test_cli_dlq import STEPS as PARSING_STEPS
from tests.e2e.test_http_client import FLOW

pytestmark = pytest.mark.e2e


class SeededServer:
    """A server with executions of each kind. `letter` names a dead letter; other texts are ids."""

    def __init__(self, server: DevServer, client: SyncClient) -> None:
        folder = server.program.folder
        self.server = server
        self.client = client
        self.completed = self._run_to_end("chain.json", {"n": 1}, labels={"team": "red"})
        self.failed = self._run_to_end("failing.json")
        self.letter = f"{self._run_to_end('parsing.json', {'text': 'bad'})}/parse"
        self.parent = self._run_to_end("parent.json")
        changed = {"name": "chain", **FLOWS["tidied"]}
        (folder / "chain2.json").write_text(json.dumps(changed))
        self.waiting = client.submit(folder / "chain2.json")

    def _run_to_end(self, file: str, input: Any = None, **given: Any) -> str:
        execution_id = self.client.submit(self.server.program.folder / file, input, **given)
        return self.client.wait(execution_id, timeout_s=30).execution_id


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededServer]:
    folder = tmp_path_factory.mktemp("seeded")
    (folder / "parsing.py").write_text(PARSING_STEPS)
    (folder / "parsing.json").write_text(json.dumps(PARSING))
    child = {"id": "child", "handler": "workflow", "config": {"file": "chain.json"}}
    (folder / "parent.json").write_text(json.dumps({"name": "parent", "nodes": [child]}))
    (folder / "doubling_flow.py").write_text(FLOW)
    with dev_server(folder) as server, SyncClient(server.url) as client:
        yield SeededServer(server, client)


@pytest.fixture
def targets(
    seeded: SeededServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> StoreAndServer:
    """Runs commands on the store of `seeded` and on its server, without other settings."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = seeded.server.program.folder
    monkeypatch.chdir(folder)
    return StoreAndServer(["--data-dir", str(folder / ".runnel")], seeded.server.url, capfd)


COMMANDS = [
    "list",
    "list --all --json",
    "list --count",
    "list --status failed --json",
    "list --label team=red --since 1h --limit 1",
    "list --search bad --json",
    "list --stuck",
    "list --stuck --json",
    "show {completed}",
    "show {completed} --json",
    "show {failed}",
    "show {failed} --json",
    "show {waiting}",
    "show {parent} --json",
    "show {completed} --node b",
    "show {failed} --node a --json",
    "history {completed}",
    "history {completed} --json",
    "workflows",
    "workflows --limit 1",
    "workflows chain",
    "workflows chain --version 1",
    "workflows chain --version 1 --json",
    "workflows chain --diff 1",
    "dlq list",
    "dlq list --count",
    "dlq list --workflow parsing --queue python --json",
    "dlq show {letter}",
    "dlq show {letter} --json",
    "top --once",
    "watch {completed}",
    "watch {failed} --json",
    "token list",
    "schedule list",
    "webhook list",
    "schedule show nothing",
    "schedule add x nothing --every 10s",
    "schedule add x chain --every 0s",
    "webhook show nothing",
    "webhook add nothing --secret x",
    # These commands are refused, with the same sentence and exit code.
    "show nothing",
    "show ''",
    "cancel {completed}",
    "signal {completed} approve",
    "signal {waiting} nothing",
    "show {completed} --node nothing",
    "workflows chain --delete --yes",
    "rerun {waiting}",
    "rerun {failed} --from nothing",
    "workflows chian",
    "workflows chain --version 9",
    "dlq show nothing",
    "dlq retry nothing",
    "token revoke nothing",
    "list --status wrong",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_prints_the_same_over_http(
    words: str, seeded: SeededServer, targets: StoreAndServer
) -> None:
    output = targets.check_same(
        *(word.strip("'") for word in words.format(**vars(seeded)).split(" "))
    )

    assert output.out or output.err


def test_the_beginning_of_an_id_is_enough(seeded: SeededServer, targets: StoreAndServer) -> None:
    output = targets.check_same("show", seeded.completed[:12])

    assert seeded.completed in output.out


def test_run_submits_to_the_server_and_prints_the_result(targets: StoreAndServer) -> None:
    done = targets.on_server("run", "chain.json")

    assert (done.code, json.loads(done.out)) == (0, {"y": 1})
    lead, named, *lines, last = done.err.splitlines()
    assert lead == f"submitted to {targets.url}: it runs there, this command only watches"
    assert named.endswith(" of chain")
    assert [line.partition(":")[0] for line in lines][-2:] == ["a", "b"]
    assert last.startswith("chain completed in ")


def test_a_failed_run_suggests_commands_for_the_server(targets: StoreAndServer) -> None:
    done = targets.on_server("run", "failing.json")

    assert (done.code, done.out) == (1, "")
    assert f"--server {targets.url}" in done.err.splitlines()[-1]


def test_a_python_file_runs_on_the_server(targets: StoreAndServer) -> None:
    done = targets.on_server("run", "doubling_flow.py", "-i", "x:=4")

    assert (done.code, done.out) == (0, "8\n")


def test_a_signal_continues_an_execution_and_a_rerun_reuses_results(
    seeded: SeededServer, targets: StoreAndServer
) -> None:
    sent = targets.on_server("signal", seeded.waiting, "approve", "--payload", "by=ada")
    watched = targets.on_server("watch", seeded.waiting)
    rerun = targets.on_server("rerun", seeded.waiting, "--from", "tidy", "--json")

    assert (sent.code, sent.err) == (0, "")
    assert sent.out == f"signal 'approve' sent to execution {seeded.waiting}\n"
    assert (watched.code, json.loads(rerun.out)["rerun_of"]) == (0, seeded.waiting)
    assert json.loads(rerun.out)["nodes"]["approve"]["output"] == {"by": "ada"}


def test_schedules_are_managed_over_http(targets: StoreAndServer) -> None:
    added = targets.on_server("schedule", "add", "yearly", "chain", "--cron", "@yearly")
    same = [
        targets.check_same("schedule", *words)
        for words in (["list"], ["list", "--json"], ["show", "yearly"], ["next", "yearly"])
    ]
    paused = targets.on_server("schedule", "pause", "yearly")
    shown = targets.check_same("schedule", "show", "yearly", "--json")
    removed = targets.on_server("schedule", "remove", "yearly")

    assert (added.code, added.err) == (0, "")
    assert all("yearly" in output.out or output.out for output in same)
    assert paused.out.startswith("schedule 'yearly' is paused")
    assert json.loads(shown.out)["is_paused"] is True
    assert removed.out == "schedule 'yearly' is removed\n"


def test_webhooks_are_managed_over_http(targets: StoreAndServer) -> None:
    words = ["webhook", "add", "chain", "--kind", "github", "--secret", "hub"]
    added, again = targets.on_server(*words), targets.check_same(*words)
    same = [
        targets.check_same("webhook", *arguments) for arguments in (["list"], ["show", "chain"])
    ]
    removed = targets.on_server("webhook", "remove", "chain")

    assert (added.code, again.code) == (0, 2)
    assert "a webhook 'chain' already exists" in again.err
    assert all("github" in output.out for output in same)
    assert removed.code == 0


def test_cancel_ends_an_execution_on_the_server(
    seeded: SeededServer, targets: StoreAndServer
) -> None:
    execution_id = seeded.client.submit(Path("tidied.json"))

    done = targets.on_server("cancel", execution_id, "--reason", "wrong file")

    assert (done.code, done.out) == (0, f"execution {execution_id} is cancelled\n")


def test_many_executions_are_cancelled_and_rerun_on_the_server(
    seeded: SeededServer, targets: StoreAndServer
) -> None:
    ids = [seeded.client.submit(Path("tidied.json"), {"n": n}) for n in range(2)]
    cancelled = targets.on_server("cancel", "--workflow", "tidied", "--yes")
    ended = {seeded.client.wait(id_, timeout_s=20).status for id_ in ids}
    failing = [
        seeded.client.submit(Path("failing.json"), labels={"kind": "many"}) for _ in range(2)
    ]
    failed = {seeded.client.wait(id_, timeout_s=20).status for id_ in failing}
    rerun = targets.on_server("rerun", "--label", "kind=many", "--status", "failed", "--yes")
    deleted = targets.on_server("workflows", "tidied", "--delete", "--yes")

    assert (cancelled.code, cancelled.out) == (0, "asked 2 executions to end\n")
    assert (ended, failed) == ({"CANCELLED"}, {"FAILED"})
    assert (rerun.code, rerun.err.splitlines()[0]) == (0, "rerun: 2 executions")
    assert deleted.out == "deleted: 1 version of 'tidied'\n"


def test_dead_letters_are_retried_and_purged_on_the_server(
    seeded: SeededServer, targets: StoreAndServer
) -> None:
    retried = targets.on_server(
        "dlq", "retry", seeded.letter, "--config", "args.text=good", "--json"
    )
    watched = targets.on_server("watch", json.loads(retried.out)["execution_id"], "--json")
    targets.on_server("run", "parsing.json", "-i", "text=bad")
    refused = targets.on_server("dlq", "purge", "--workflow", "parsing")
    purged = targets.on_server("dlq", "purge", "--workflow", "parsing", "--yes")

    assert (retried.code, json.loads(watched.out)["output"]) == (0, {"said": "GOOD"})
    assert "confirm with --yes" in refused.err
    assert purged.out == "removed: 1 dead letter\n"
    assert targets.check_same("dlq", "list", "--workflow", "parsing").out == "no dead letters\n"


def test_a_batch_runs_on_the_server_and_can_be_continued(
    seeded: SeededServer, targets: StoreAndServer
) -> None:
    inputs = seeded.server.program.folder / "inputs.jsonl"
    inputs.write_text('{"id": 1}\n{"id": 2}\n')
    first = targets.on_server("batch", "chain.json", "--inputs", str(inputs), "--json")
    inputs.write_text('{"id": 1}\n{"id": 2}\n{"id": 3}\n')
    second = targets.on_server("batch", "chain.json", "--inputs", str(inputs), "--json")

    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["completed"] == 2
    assert (json.loads(second.out)["completed"], json.loads(second.out)["done_before"]) == (3, 2)


STEPS_PROGRAM = """
import runnel
def fail(inputs):
    raise ValueError("broken")
dag = runnel.WorkflowDAG("steps")
dag.add_step("fail", fail, retry=runnel.RetryPolicy(max_retries=0))
print(runnel.WorkflowExecutor(data_dir=".runnel").execute_sync(dag).execution_id)
"""
REASON = "its step 'fail' is a function of the program that ran it with WorkflowExecutor"


def test_an_execution_of_a_workflow_executor_is_not_rerun(
    seeded: SeededServer, targets: StoreAndServer
) -> None:
    folder = seeded.server.program.folder
    (folder / "steps.py").write_text(STEPS_PROGRAM)
    ran = subprocess.run(
        [sys.executable, "steps.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    execution_id = ran.stdout.split()[-1]

    with pytest.raises(WrongStateError, match=REASON):
        seeded.client.rerun(execution_id)
    refused = targets.check_same("rerun", execution_id)
    letter = targets.check_same("dlq", "retry", f"{execution_id}/fail")
    bulk = list(seeded.client.many.rerun(ExecutionFilter(workflow="steps")))
    letters = seeded.client.dead_letters.retry_many(LettersOf(workflow="steps"))

    assert (refused.code, letter.code) == (2, 2)
    assert REASON in refused.err
    assert REASON in letter.err
    assert [len(step.ids) for step in bulk] == [0]
    assert REASON in bulk[0].failures[0].error
    assert (len(letters.retried), len(letters.refused)) == (0, 1)
