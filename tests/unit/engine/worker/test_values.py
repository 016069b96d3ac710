"""The values that travel with a task."""

import pytest

from runnel.core.templates.errors import MissingValueError
from runnel.core.values import blob
from runnel.engine.worker import task_values as module
from runnel.engine.worker.task_values import Values
from runnel.errors import PayloadError
from tests.unit.engine.worker.stage import Stage


async def test_inputs_too_large_to_be_loaded_together_are_refused(
    frozen: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADED_BYTES_MAX", 10)
    blobs = frozen.backend.blobs
    for key in "ab":
        await blobs.put(key, b'"six"!')
    values = Values(frozen.task("output", inputs={"a": blob("a", 6), "b": blob("b", 6)}))

    await values.load(["a"], blobs)
    with pytest.raises(PayloadError, match="of node 'node' take 12 bytes together, at most 10"):
        await values.load(["a", "b"], blobs)


def test_a_name_that_does_not_travel_with_the_task_is_missing(frozen: Stage) -> None:
    values = Values(frozen.task("output", inputs={"first": 1}))

    with pytest.raises(MissingValueError, match=r"input, execution, first.*mean 'first'"):
        values.lookup("frist")


def test_the_outputs_of_parents_are_a_mapping_of_parents_only(frozen: Stage) -> None:
    task = frozen.task("output", inputs={"a": 1, "b": [2], "distant": 3}, parents=2)
    parents = Values(task).parents

    assert dict(parents) == {"a": 1, "b": [2]}
    assert len(parents) == 2
    assert "distant" not in parents
    assert repr(parents) == "<outputs of a, b>"
    assert repr(Values(frozen.task("output")).parents) == "<outputs of no parents>"


def test_what_is_in_memory_is_taken_at_once(frozen: Stage) -> None:
    values = Values(frozen.task("output", inputs={"a": blob("k/a", 3), "b": blob("k/b", 3)}))
    at_hand = {"k/a": b'"A"'}

    assert not values.take(values.kept_aside(["a", "b"]), at_hand.get)
    assert list(values.kept_aside(["a", "b"])) == ["b"]
    assert values.take(values.kept_aside(["a"]), at_hand.get)
    assert values.lookup("a") == "A"


def test_what_is_in_memory_is_no_less_bounded(
    frozen: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOADED_BYTES_MAX", 10)
    values = Values(frozen.task("output", inputs={"a": blob("a", 6), "b": blob("b", 6)}))

    with pytest.raises(PayloadError, match="take 12 bytes together, at most 10"):
        values.take(values.kept_aside(["a", "b"]), lambda _key: b'"six"!')
