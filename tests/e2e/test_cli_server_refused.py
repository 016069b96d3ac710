"""`--server` with an unreachable server, another program or a missing token: one sentence each."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runnel.cli.main import run_command
from runnel.settings.variables import VARIABLES
from tests.e2e.dev_server import dev_server
from tests.e2e.store_and_server import CommandOutput
from tests.scripted_http_server import ScriptedServer, make_answer, open_scripted_server

pytestmark = pytest.mark.e2e

NOWHERE = "http://127.0.0.1:1"


class CommandLine:
    """Runs commands in this process, in an empty folder."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def run(self, *arguments: str, **environment: str) -> CommandOutput:
        for name in VARIABLES:
            self._monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)
        self._capfd.readouterr()
        code = run_command(arguments)
        printed = self._capfd.readouterr()
        return CommandOutput(code, printed.out, printed.err)

    def documents(self, *arguments: str, **environment: str) -> list[dict[str, Any]]:
        output = self.run(*arguments, "--json", **environment)
        assert output.code == 0, output.err
        return [json.loads(line) for line in output.out.splitlines()]


@pytest.fixture
def cli(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(capfd, monkeypatch)


@pytest.fixture
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.mark.parametrize(("option", "value"), [("--data-dir", "x"), ("--redis-url", "redis://x")])
def test_a_server_and_a_store_together_are_refused(
    cli: CommandLine, option: str, value: str
) -> None:
    output = cli.run("list", "--server", NOWHERE, option, value)

    expected = f"error: {option} and --server name two stores; give only one of them\n"
    assert output == CommandOutput(2, "", expected)


def test_an_invalid_address_is_refused(cli: CommandLine) -> None:
    output = cli.run("list", "--server", "localhost:8080")

    problem = "expected a URL such as https://runnel.example.com, got 'localhost:8080'"
    assert output == CommandOutput(2, "", f"error: --server: {problem}\n")


def test_an_unreachable_server_is_reported_with_its_address(cli: CommandLine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    output = cli.run("list", "--server", url)

    reason = "connection refused; check that the server runs and listens at this address"
    expected = f"error: can't use the Runnel server at {url}: {reason}\n"
    assert (output.code, output.err) == (1, expected)


def test_a_store_on_the_command_line_wins_over_a_server_in_the_environment(
    cli: CommandLine,
) -> None:
    output = cli.run("list", "--data-dir", "x", RUNNEL_SERVER=NOWHERE)

    assert (output.code, "there is no data in 'x'" in output.err) == (0, True)


@pytest.mark.parametrize("command", [["resume"], ["trim"]])
def test_a_command_that_needs_the_store_refuses_a_server(
    cli: CommandLine, command: list[str], tmp_path: Path
) -> None:
    output = cli.run(*command, RUNNEL_SERVER=NOWHERE)

    assert (output.code, output.out) == (2, "")
    assert output.err.startswith("error: ")
    assert not (tmp_path / ".runnel").exists()


async def test_another_program_at_that_address_is_reported(
    cli: CommandLine, scripted_server: ScriptedServer
) -> None:
    scripted_server.says(
        "/v1/server", make_answer(200, b"<html>hello</html>", content_type="text/html")
    )

    output = await asyncio.to_thread(cli.run, "list", "--server", scripted_server.url())

    problem = "is not a Runnel server: it answered 200 with text/html; check the address"
    expected = f"error: the server at {scripted_server.url().rstrip('/')} {problem}\n"
    assert (output.code, output.err) == (2, expected)


def test_tokens_are_required_checked_and_managed_over_http(
    cli: CommandLine, tmp_path: Path
) -> None:
    made = cli.documents("token", "create", "boss", "--scope", "admin")[0]
    with dev_server(tmp_path) as server:
        on_server = ("--server", server.url)
        without = cli.run("list", *on_server)
        wrong = cli.run("list", *on_server, RUNNEL_TOKEN="rnl_00000000_wrong")
        boss = {"RUNNEL_TOKEN": str(made["token"])}
        reader = cli.documents("token", "create", "bob", "--scope", "read", *on_server, **boss)[0]
        bob = {"RUNNEL_TOKEN": str(reader["token"])}
        listed = cli.documents("token", "list", *on_server, **boss)
        may_read = cli.run("list", *on_server, **bob)
        may_not = cli.run("run", "chain.json", *on_server, **bob)
        revoked = cli.run("token", "revoke", str(reader["id"]), *on_server, **boss)
        listed_on_store = cli.documents("token", "list")

    expected = (
        f"error: the server at {server.url} requires a token: set RUNNEL_TOKEN; an administrator "
        "of the server creates a token with 'runnel token create'\n"
    )
    assert (without.code, without.err) == (2, expected)
    assert (wrong.code, wrong.err) == (
        2,
        "error: the token is unknown or was revoked; ask for another one\n",
    )
    assert (may_read.code, may_read.out) == (0, "no executions\n")
    assert (may_not.code, may_not.err) == (
        2,
        "error: this needs a token with the scope 'run'; the given token has: read\n",
    )
    assert {entry["name"] for entry in listed} == {"boss", "bob"}
    assert revoked.out == f"revoked {reader['id']}\n"
    assert listed_on_store == [entry for entry in listed if entry["name"] == "boss"]
