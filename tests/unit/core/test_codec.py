"""Stored formats: a fixture of each released format stays readable for ever."""

from pathlib import Path
from typing import get_args

import pytest

from runnel.core import codec
from runnel.core.commands import Command
from runnel.core.events import AnyEvent
from runnel.core.evolve import replay
from runnel.core.graph import Graph
from runnel.core.states import ExecutionState, NodeState
from runnel.core.workflow import decode_workflow
from runnel.errors import UnreadableFormatError

FIXTURES = Path(__file__).parent / "fixtures"


def lines(name: str) -> list[bytes]:
    return (FIXTURES / name).read_bytes().splitlines()


def test_a_history_of_format_1_rebuilds_its_execution() -> None:
    definition, *entries = lines("history_v1.jsonl")
    graph = Graph(decode_workflow(definition))

    execution = replay(entries, lambda _hash: graph)

    assert execution is not None
    assert execution.state is ExecutionState.FAILED
    assert [run.state for run in execution.nodes] == [
        NodeState.COMPLETED,
        NodeState.COMPLETED,
        NodeState.SKIPPED,
        NodeState.FAILED,
        NodeState.CANCELLED,
        NodeState.COMPLETED,
        NodeState.COMPLETED,
    ]


def test_the_fixtures_hold_every_kind_of_event_and_command() -> None:
    events = {
        type(event)
        for line in lines("events_v1.jsonl")
        for event in codec.decode_entry(line).events
    }
    commands = {type(codec.decode_message(line)) for line in lines("commands_v1.jsonl")}

    assert events == set(get_args(AnyEvent))
    assert commands == set(get_args(Command))


@pytest.mark.parametrize("name", ["events_v1.jsonl", "commands_v1.jsonl"])
def test_stored_data_is_encoded_to_the_same_bytes(name: str) -> None:
    for line in lines(name):
        if name.startswith("events"):
            entry = codec.decode_entry(line)
            assert codec.encode_entry(entry.at, entry.events) == line
        else:
            assert codec.encode_message(codec.decode_message(line)) == line


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is not in Runnel's format"),
        (b"{}", "is not in Runnel's format"),
        (b"[2,1.0,[]]", "has format 2, this Runnel reads up to 1: upgrade it"),
        (b'[1,1.0,[{"type":"Odd"}]]', "of format 1 can't be decoded"),
        (b"\xff\xfe", "is not in Runnel's format"),
    ],
)
def test_the_error_for_unreadable_data_says_why(data: bytes, problem: str) -> None:
    with pytest.raises(UnreadableFormatError, match=problem):
        codec.decode_entry(data)
    with pytest.raises(UnreadableFormatError):
        codec.decode_message(data)
