"""The values that a task carries."""

import pytest

from runnel.core.templates.errors import MissingValueError
from runnel.core.values import make_blob_reference
from runnel.engine.worker import task_values as module
from runnel.engine.worker.task_values import TaskInputs
from runnel.errors import PayloadError
from tests.unit.engine.worker.worker_harness import WorkerHarness


async def test_inputs_that_are_too_large_together_are_refused(
    frozen: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADED_BYTES_MAX", 10)
    blobs = frozen.backend.blobs
    for key in "ab":
        await blobs.put(key, b'"six"!')
    values = TaskInputs(
        frozen.task(
            "output", inputs={"a": make_blob_reference("a", 6), "b": make_blob_reference("b", 6)}
        )
    )

    await values.load(["a"], blobs)
    with pytest.raises(PayloadError, match="of node 'node' take 12 bytes together, at most 10"):
        await values.load(["a", "b"], blobs)


def test_a_name_that_the_task_does_not_carry_is_missing(frozen: WorkerHarness) -> None:
    values = TaskInputs(frozen.task("output", inputs={"first": 1}))

    with pytest.raises(
        MissingValueError, match=r"'frist' was skipped or did not complete, so it has no output"
    ):
        values.lookup("frist")


def test_the_outputs_of_parents_contain_parents_only(frozen: WorkerHarness) -> None:
    task = frozen.task("output", inputs={"a": 1, "b": [2], "distant": 3}, parents=2)
    parents = TaskInputs(task).parents

    assert dict(parents) == {"a": 1, "b": [2]}
    assert len(parents) == 2
    assert "distant" not in parents
    assert repr(parents) == "<outputs of a, b>"
    assert repr(TaskInputs(frozen.task("output")).parents) == "<outputs of no parents>"


def test_blobs_in_memory_are_used_at_once(frozen: WorkerHarness) -> None:
    values = TaskInputs(
        frozen.task(
            "output",
            inputs={"a": make_blob_reference("k/a", 3), "b": make_blob_reference("k/b", 3)},
        )
    )
    at_hand = {"k/a": b'"A"'}

    assert not values.take_cached(values.find_unloaded(["a", "b"]), at_hand.get)
    assert list(values.find_unloaded(["a", "b"])) == ["b"]
    assert values.take_cached(values.find_unloaded(["a"]), at_hand.get)
    assert values.lookup("a") == "A"


def test_blobs_in_memory_count_against_the_limit(
    frozen: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADED_BYTES_MAX", 10)
    values = TaskInputs(
        frozen.task(
            "output", inputs={"a": make_blob_reference("a", 6), "b": make_blob_reference("b", 6)}
        )
    )

    with pytest.raises(PayloadError, match="take 12 bytes together, at most 10"):
        values.take_cached(values.find_unloaded(["a", "b"]), lambda _key: b'"six"!')
