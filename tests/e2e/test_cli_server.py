"""`--server`: every command prints over HTTP what it prints on the store itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runnel import SyncClient
from runnel.settings.variables import VARIABLES
from tests.e2e.dev_server import DevServer, dev_server
from tests.e2e.program import FLOWS
from tests.e2e.store_and_server import StoreAndServer
from tests.e2e.test_cli_dlq import FLOW as PARSING
from tests.e2e.test_cli_dlq import STEPS as PARSING_STEPS
from tests.e2e.test_http_client import FLOW

pytestmark = pytest.mark.e2e


class Played:
    """A server that has run something of each kind; each id is that of an execution."""

    def __init__(self, server: DevServer, client: SyncClient) -> None:
        folder = server.program.folder
        self.server = server
        self.client = client
        self.completed = self._ended("chain.json", {"n": 1}, labels={"team": "red"})
        self.failed = self._ended("failing.json")
        self.letter = f"{self._ended('parsing.json', {'text': 'bad'})}/parse"
        self.parent = self._ended("parent.json")
        changed = {"name": "chain", **FLOWS["tidied"]}
        (folder / "chain2.json").write_text(json.dumps(changed))
        self.waiting = client.submit(folder / "chain2.json")

    def _ended(self, file: str, input: Any = None, **given: Any) -> str:
        begun = self.client.submit(self.server.program.folder / file, input, **given)
        return self.client.wait(begun, timeout_s=30).execution_id


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("played")
    (folder / "parsing.py").write_text(PARSING_STEPS)
    (folder / "parsing.json").write_text(json.dumps(PARSING))
    child = {"id": "child", "handler": "workflow", "config": {"file": "chain.json"}}
    (folder / "parent.json").write_text(json.dumps({"name": "parent", "nodes": [child]}))
    (folder / "doubling_flow.py").write_text(FLOW)
    with dev_server(folder) as server, SyncClient(server.url) as client:
        yield Played(server, client)


@pytest.fixture
def places(
    played: Played, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> StoreAndServer:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = played.server.program.folder
    monkeypatch.chdir(folder)
    return StoreAndServer(["--data-dir", str(folder / ".runnel")], played.server.url, capfd)


LOOKS = [
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
    # What is refused is refused with the same words and exit code.
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


@pytest.mark.parametrize("words", LOOKS)
def test_a_command_says_the_same_over_http(
    words: str, played: Played, places: StoreAndServer
) -> None:
    said = places.check_same(*(word.strip("'") for word in words.format(**vars(played)).split(" ")))

    assert said.out or said.err


def test_a_part_of_an_id_is_enough(played: Played, places: StoreAndServer) -> None:
    said = places.check_same("show", played.completed[:12])

    assert played.completed in said.out


def test_run_submits_to_the_server_and_prints_the_result(places: StoreAndServer) -> None:
    done = places.there("run", "chain.json")

    assert (done.code, json.loads(done.out)) == (0, {"y": 1})
    lead, named, *lines, last = done.err.splitlines()
    assert lead == f"submitted to {places.url}: it runs there, this command only watches"
    assert named.endswith(" of chain")
    assert [line.partition(":")[0] for line in lines][-2:] == ["a", "b"]
    assert last.startswith("chain completed in ")


def test_a_failed_run_suggests_commands_for_the_server(places: StoreAndServer) -> None:
    done = places.there("run", "failing.json")

    assert (done.code, done.out) == (1, "")
    assert f"--server {places.url}" in done.err.splitlines()[-1]


def test_a_python_file_is_run_there(places: StoreAndServer) -> None:
    done = places.there("run", "doubling_flow.py", "-i", "x:=4")

    assert (done.code, done.out) == (0, "8\n")


def test_a_signal_continues_an_execution_and_a_rerun_reuses_results(
    played: Played, places: StoreAndServer
) -> None:
    sent = places.there("signal", played.waiting, "approve", "--payload", "by=ada")
    watched = places.there("watch", played.waiting)
    rerun = places.there("rerun", played.waiting, "--from", "tidy", "--json")

    assert (sent.code, sent.err) == (0, "")
    assert sent.out == f"signal 'approve' sent to execution {played.waiting}\n"
    assert (watched.code, json.loads(rerun.out)["rerun_of"]) == (0, played.waiting)
    assert json.loads(rerun.out)["nodes"]["approve"]["output"] == {"by": "ada"}


def test_schedules_are_kept_there(places: StoreAndServer) -> None:
    added = places.there("schedule", "add", "yearly", "chain", "--cron", "@yearly")
    same = [
        places.check_same("schedule", *words)
        for words in (["list"], ["list", "--json"], ["show", "yearly"], ["next", "yearly"])
    ]
    paused = places.there("schedule", "pause", "yearly")
    shown = places.check_same("schedule", "show", "yearly", "--json")
    removed = places.there("schedule", "remove", "yearly")

    assert (added.code, added.err) == (0, "")
    assert all("yearly" in each.out or each.out for each in same)
    assert paused.out.startswith("schedule 'yearly' is paused")
    assert json.loads(shown.out)["is_paused"] is True
    assert removed.out == "schedule 'yearly' is removed\n"


def test_webhooks_are_kept_there(places: StoreAndServer) -> None:
    words = ["webhook", "add", "chain", "--kind", "github", "--secret", "hub"]
    added, again = places.there(*words), places.check_same(*words)
    same = [places.check_same("webhook", *each) for each in (["list"], ["show", "chain"])]
    removed = places.there("webhook", "remove", "chain")

    assert (added.code, again.code) == (0, 2)
    assert "a webhook 'chain' already exists" in again.err
    assert all("github" in each.out for each in same)
    assert removed.code == 0


def test_cancel_ends_what_runs_there(played: Played, places: StoreAndServer) -> None:
    begun = played.client.submit(Path("tidied.json"))

    done = places.there("cancel", begun, "--reason", "wrong file")

    assert (done.code, done.out) == (0, f"execution {begun} is cancelled\n")


def test_many_are_cancelled_and_rerun_there(played: Played, places: StoreAndServer) -> None:
    begun = [played.client.submit(Path("tidied.json"), {"n": n}) for n in range(2)]
    cancelled = places.there("cancel", "--workflow", "tidied", "--yes")
    ended = {played.client.wait(each, timeout_s=20).status for each in begun}
    rerun = places.there("rerun", "--workflow", "failing", "--status", "failed", "--yes")
    deleted = places.there("workflows", "tidied", "--delete", "--yes")

    assert (cancelled.code, cancelled.out) == (0, "asked 2 executions to end\n")
    assert ended == {"CANCELLED"}
    assert (rerun.code, rerun.err.splitlines()[0]) == (0, "rerun: 2 executions")
    assert deleted.out == "deleted: 1 version of 'tidied'\n"


def test_dead_letters_are_retried_and_purged_there(played: Played, places: StoreAndServer) -> None:
    retried = places.there("dlq", "retry", played.letter, "--config", "args.text=good", "--json")
    watched = places.there("watch", json.loads(retried.out)["execution_id"], "--json")
    places.there("run", "parsing.json", "-i", "text=bad")
    refused = places.there("dlq", "purge", "--workflow", "parsing")
    purged = places.there("dlq", "purge", "--workflow", "parsing", "--yes")

    assert (retried.code, json.loads(watched.out)["output"]) == (0, {"said": "GOOD"})
    assert "confirm with --yes" in refused.err
    assert purged.out == "removed: 1 dead letter\n"
    assert places.check_same("dlq", "list", "--workflow", "parsing").out == "no dead letters\n"


def test_a_batch_runs_there_and_can_be_continued(played: Played, places: StoreAndServer) -> None:
    inputs = played.server.program.folder / "inputs.jsonl"
    inputs.write_text('{"id": 1}\n{"id": 2}\n')
    first = places.there("batch", "chain.json", "--inputs", str(inputs), "--json")
    inputs.write_text('{"id": 1}\n{"id": 2}\n{"id": 3}\n')
    second = places.there("batch", "chain.json", "--inputs", str(inputs), "--json")

    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["completed"] == 2
    assert (json.loads(second.out)["completed"], json.loads(second.out)["done_before"]) == (3, 2)
