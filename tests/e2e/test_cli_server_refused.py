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
    """Commands in this process, and in an empty folder."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def ask(self, *arguments: str, **environment: str) -> CommandOutput:
        for name in VARIABLES:
            self._monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)
        self._capfd.readouterr()
        code = run_command(arguments)
        printed = self._capfd.readouterr()
        return CommandOutput(code, printed.out, printed.err)

    def documents(self, *arguments: str, **environment: str) -> list[dict[str, Any]]:
        said = self.ask(*arguments, "--json", **environment)
        assert said.code == 0, said.err
        return [json.loads(line) for line in said.out.splitlines()]


@pytest.fixture
def desk(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(capfd, monkeypatch)


@pytest.fixture
async def odd() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.mark.parametrize(("option", "value"), [("--data-dir", "x"), ("--redis-url", "redis://x")])
def test_two_places_are_refused(desk: CommandLine, option: str, value: str) -> None:
    said = desk.ask("list", "--server", NOWHERE, option, value)

    expected = f"error: {option} and --server are two places; give only one of them\n"
    assert said == CommandOutput(2, "", expected)


def test_an_invalid_address_is_refused(desk: CommandLine) -> None:
    said = desk.ask("list", "--server", "localhost:8080")

    what = "expected a URL such as https://runnel.example.com, got 'localhost:8080'"
    assert said == CommandOutput(2, "", f"error: --server: {what}\n")


def test_an_unreachable_server_is_reported_with_its_address(desk: CommandLine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    said = desk.ask("list", "--server", url)

    reason = "connection refused; check that it runs, and that it listens at this address"
    expected = f"error: can't use the Runnel server at {url}: {reason}\n"
    assert (said.code, said.err) == (1, expected)


def test_a_place_on_the_command_line_wins_over_a_server_of_the_environment(
    desk: CommandLine,
) -> None:
    said = desk.ask("list", "--data-dir", "x", RUNNEL_SERVER=NOWHERE)

    assert (said.code, "there is no data in 'x'" in said.err) == (0, True)


@pytest.mark.parametrize("command", [["resume"], ["trim"]])
def test_a_command_that_needs_the_store_itself_says_so(
    desk: CommandLine, command: list[str], tmp_path: Path
) -> None:
    said = desk.ask(*command, RUNNEL_SERVER=NOWHERE)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert not (tmp_path / ".runnel").exists()


async def test_another_program_at_that_address_is_reported(
    desk: CommandLine, odd: ScriptedServer
) -> None:
    odd.says("/v1/server", make_answer(200, b"<html>hello</html>", content_type="text/html"))

    said = await asyncio.to_thread(desk.ask, "list", "--server", odd.url())

    problem = "is not a Runnel server: it answered 200 with text/html; check the address"
    expected = f"error: the server at {odd.url().rstrip('/')} {problem}\n"
    assert (said.code, said.err) == (2, expected)


def test_tokens_are_required_checked_and_managed_over_http(
    desk: CommandLine, tmp_path: Path
) -> None:
    made = desk.documents("token", "create", "boss", "--scope", "admin")[0]
    with dev_server(tmp_path) as server:
        place = ("--server", server.url)
        without = desk.ask("list", *place)
        wrong = desk.ask("list", *place, RUNNEL_TOKEN="rnl_00000000_wrong")
        boss = {"RUNNEL_TOKEN": str(made["token"])}
        reader = desk.documents("token", "create", "bob", "--scope", "read", *place, **boss)[0]
        bob = {"RUNNEL_TOKEN": str(reader["token"])}
        listed = desk.documents("token", "list", *place, **boss)
        may_read = desk.ask("list", *place, **bob)
        may_not = desk.ask("run", "chain.json", *place, **bob)
        revoked = desk.ask("token", "revoke", str(reader["id"]), *place, **boss)
        here = desk.documents("token", "list")

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
    assert {each["name"] for each in listed} == {"boss", "bob"}
    assert revoked.out == f"revoked {reader['id']}\n"
    assert here == [each for each in listed if each["name"] == "boss"]
