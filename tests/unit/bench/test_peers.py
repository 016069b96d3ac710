"""Measurements of peers. These tests install no peer: this interpreter replaces them."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from bench.peers import PEERS, describe_peer, environment, measure
from bench.peers.__main__ import main, parse_setting
from bench.peers.catalogue import PEERS_BY_NAME
from bench.peers.deployment import build_command_line
from bench.peers.environment import find_environment_folder, prepare_python, read_pinned_versions
from bench.peers.errors import PeerFailedError, PeerMissingError, UnknownPeerError
from bench.peers.measurement import measure_with_python, parse_figures
from bench.peers.peer import WORKLOADS, Command, Peer, PeerSettings
from bench.peers.programs.order import (
    EXPECTED,
    MeasurementOrder,
    compute_edge_latencies,
    run_order,
)

PYTHON = Path(sys.executable)
FOREVER = ["-c", "import threading; threading.Event().wait()"]
FIGURES = ["-c", "print('warm'); print('{\"fan_1000_s\": 2}')"]


def make_peer(program: Command, *workers: Command) -> Peer:
    """Returns a peer whose programs need no package, so that this interpreter can run them."""

    def commands(settings: PeerSettings) -> list[Command]:
        return list(workers)

    return Peer(
        name="one",
        environment="none",
        program=program,
        server="sqlite",
        shown=(),
        durability="",
        joins="",
        layout="",
        counts={"fan": 7},
        settings={"slots": 1, "pool": "a"},
        best_for={"fan": {"slots": 2}},
        workers=commands,
    )


def measure_fan(peer: Peer) -> dict[str, float]:
    return measure_with_python(PYTHON, peer, "fan", settings={"pool": "b"})


def test_the_last_line_of_a_program_has_the_figures() -> None:
    assert measure_fan(make_peer(FIGURES, FOREVER)) == {"fan_1000_s": 2.0}


def test_a_program_reads_its_order_from_its_working_directory() -> None:
    program = "import json; o = json.load(open('order.json')); s = o['settings']"
    output = "print(json.dumps({'count': o['count'], 'slots': s['slots'], s['pool']: 0}))"

    figures = measure_fan(make_peer(["-c", f"{program}; {output}"]))

    assert figures == {"count": 7, "slots": 2, "b": 0}


@pytest.mark.parametrize(
    ("program", "workers", "sentence"),
    [
        (["-c", "raise ValueError('no d')"], [], "one, fan: ended with exit code 1: .*no d"),
        (["-c", "print('done')"], [], "one, fan: printed no figures: done"),
        (["-c", "print('{}')"], [], "one, fan: printed no figures: {}"),
        (["-m", "programs", "on_nothing"], [], "No module named 'programs.on_nothing'"),
        (FOREVER, [["-c", "raise SystemExit('no port')"]], "one, fan: its worker-0 ended: no port"),
    ],
)
def test_a_failure_is_reported_in_one_sentence(
    program: Command, workers: list[Command], sentence: str
) -> None:
    with pytest.raises(PeerFailedError, match=sentence) as raised:
        measure_fan(make_peer(program, *workers))

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("end", ["print('{\"fan_1000_s\": 2}')", "raise ValueError"])
def test_no_process_and_no_folder_is_left_after_a_measurement(end: str, tmp_path: Path) -> None:
    pipe, note = tmp_path / "pipe", tmp_path / "note"
    os.mkfifo(pipe)
    worker = f"open({str(pipe)!r}, 'w').write(f'{{os.getpid()}} {{os.getcwd()}}')"
    program = f"open({str(note)!r}, 'w').write(open({str(pipe)!r}).read())"

    with suppress(PeerFailedError):
        measure_fan(
            make_peer(["-c", f"{program}\n{end}"], ["-c", f"import os; {worker}; {FOREVER[1]}"])
        )

    pid, folder = note.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert not Path(folder).exists()


def test_a_peer_can_import_its_programs_but_not_this_project() -> None:
    python = Path("/cache/celery/bin/python")
    path = f"PYTHONPATH={environment.FOLDER}"

    assert build_command_line(python, ["-m", "celery"]) == [
        "/usr/bin/env",
        path,
        str(python),
        "-m",
        "celery",
    ]
    assert build_command_line(python, ["temporal", "server"])[2:] == [
        "/cache/celery/bin/temporal",
        "server",
    ]


def test_other_pinned_versions_get_another_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "FOLDER", tmp_path)
    monkeypatch.setenv("RUNNEL_BENCH_CACHE", str(tmp_path / "cache"))

    (tmp_path / "one.txt").write_text("celery==5.7.0\n")
    first = find_environment_folder("one")
    (tmp_path / "one.txt").write_text("celery==5.8.0\n")

    assert first.parent == tmp_path / "cache"
    assert first.name.startswith("one-")
    assert find_environment_folder("one") != first


@pytest.mark.slow
def test_a_failed_installation_is_reported_in_one_sentence_and_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "FOLDER", tmp_path)
    monkeypatch.setenv("RUNNEL_BENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "one.txt").write_text("not a requirement\n")

    with pytest.raises(PeerMissingError, match="one can't be installed and is skipped: ") as raised:
        prepare_python("one")

    assert "\n" not in str(raised.value)
    assert not find_environment_folder("one").exists()


@pytest.mark.parametrize("name", PEERS)
def test_the_description_of_a_peer_has_its_pinned_versions(name: str) -> None:
    description = describe_peer(name)

    versions = read_pinned_versions(PEERS_BY_NAME[name].environment)
    assert description["versions"].split(", ")[0] in {
        f"{key} {value}" for key, value in versions.items()
    }
    assert ("NOT durable" in description["joins"]) is (name == "taskiq")
    assert all(description[key] for key in ("durability", "layout", "settings", "counts"))


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_peer_has_settings_and_a_count_for_every_workload(name: str, workload: str) -> None:
    peer = PEERS_BY_NAME[name]

    commands = [peer.program, *peer.workers(peer.settings_for(workload))]

    assert peer.counts[workload] >= 1
    assert all(isinstance(word, str) for command in commands for word in command)


@pytest.mark.parametrize(
    ("peer_name", "workload", "sentence"),
    [
        ("airflow", "fan", "no peer is called 'airflow': choose one of celery, "),
        ("celery", "map", "no workload is called 'map': choose one of diamonds, chain, fan"),
    ],
)
def test_the_error_of_an_unknown_name_lists_the_known_names(
    peer_name: str, workload: str, sentence: str
) -> None:
    with pytest.raises(UnknownPeerError, match=sentence):
        measure(peer_name, workload)


@pytest.mark.parametrize("output", ["", "[]", "{}", "3", "{broken"])
def test_figures_must_be_an_object_of_numbers(output: str) -> None:
    with pytest.raises(ValueError, match=r"expected figures|Expecting property name"):
        parse_figures(output)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("slots=4", ("slots", 4)), ("pool=threads", ("pool", "threads")), ("a=[1]", ("a", [1]))],
)
def test_a_setting_of_the_command_line_is_json_or_text(
    text: str, expected: tuple[str, object]
) -> None:
    assert parse_setting(text) == expected


def test_the_command_line_refuses_a_setting_without_a_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--set", "slots"])

    assert "expected name=value, got 'slots'" in capsys.readouterr().err


def make_order(workload: str) -> MeasurementOrder:
    return MeasurementOrder(workload=workload, count=5, url="", settings={})


@pytest.mark.parametrize(
    ("workload", "figures"),
    [
        ("diamonds", {"diamonds_per_s", "nodes_per_s"}),
        ("chain", {"edge_ms_p50", "edge_ms_p99"}),
        ("fan", {"fan_1000_s"}),
    ],
)
async def test_a_program_prints_the_figures_of_its_workload(
    workload: str, figures: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(name: str, count: int) -> Sequence[int]:
        return [EXPECTED[name]] * count

    await run_order(make_order(workload), run)

    assert set(json.loads(capsys.readouterr().out)) == figures


@pytest.mark.parametrize("lost", [0, 1])
async def test_wrong_results_give_no_figure(lost: int, capsys: pytest.CaptureFixture[str]) -> None:
    async def run(name: str, count: int) -> Sequence[int]:
        return [EXPECTED[name] - 1 + lost] * (count - lost)

    with pytest.raises(ValueError, match=r"diamonds: .* returned"):
        await run_order(make_order("diamonds"), run)

    assert capsys.readouterr().out == ""


def test_the_latency_of_an_edge_is_a_twentieth_of_its_chain() -> None:
    assert compute_edge_latencies([0.02 * number for number in range(1, 101)]) == pytest.approx(
        {"edge_ms_p50": 50.0, "edge_ms_p99": 99.0}
    )
