"""The command group turns functions into commands: dataclass options, coroutines, help."""

import inspect
from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer

from runnel.cli.command_group import adapt_command, make_command_group
from runnel.cli.options import DirectLocation, RedisLocation, ServerLocation, StoreLocation


@dataclass(frozen=True, slots=True)
class Pair:
    left: Annotated[str, typer.Option("--left")] = "l"
    right: Annotated[int | None, typer.Option("--right")] = None
    both: bool = field(default=True, init=False)


def list_options(command: object) -> list[str]:
    return list(inspect.signature(adapt_command(command)).parameters)  # type: ignore[arg-type]  # any callable


def test_a_dataclass_parameter_adds_the_options_of_its_fields() -> None:
    def command(name: str, *, pair: Pair, limit: int = 3) -> tuple[str, Pair, int]:
        return name, pair, limit

    adapted = adapt_command(command)

    assert list_options(command) == ["name", "left", "right", "limit"]
    assert adapted(name="n", left="x", right=2, limit=5) == ("n", Pair("x", 2), 5)


def test_a_coroutine_runs_in_an_event_loop_of_its_own() -> None:
    async def command(*, code: int) -> int:
        return code

    assert adapt_command(command)(code=7) == 7


def test_the_help_of_a_command_is_its_docstring() -> None:
    def command() -> None:
        """Do something."""

    assert adapt_command(command).__doc__ == "Do something."


def test_the_lines_of_a_paragraph_of_the_help_are_joined_so_that_the_terminal_wraps_them() -> None:
    def command() -> None:
        """Do something.

        A paragraph that
        has two lines.

        The last one.
        """

    expected = "Do something.\n\nA paragraph that has two lines.\n\nThe last one."
    assert adapt_command(command).__doc__ == expected


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (StoreLocation, ["data_dir", "redis_url", "server"]),
        (DirectLocation, ["data_dir", "redis_url"]),
        (ServerLocation, ["redis_url", "server"]),
        (RedisLocation, ["redis_url"]),
    ],
)
def test_a_command_has_the_location_options_that_make_sense_for_it(
    location: type[StoreLocation], expected: list[str]
) -> None:
    def command(*, place: StoreLocation) -> None:
        raise AssertionError(place)

    command.__annotations__["place"] = location

    assert list_options(command) == expected


def test_a_group_without_a_subcommand_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    greeted = []

    def greet(*, pair: Pair) -> None:
        greeted.append(pair)

    app = make_command_group("Greet.", first_command="x greet", commands={"greet": (greet, "x")})

    app([], standalone_mode=False)
    app(["greet", "--left", "a", "--right", "2"], standalone_mode=False)

    assert "Greet." in capsys.readouterr().out
    assert greeted == [Pair("a", 2)]
