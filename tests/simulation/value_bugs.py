"""Deliberate defects of values: executions end in the right state with wrong values."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from runnel.core import decide as decide_package
from runnel.core.codec import encode_message
from runnel.core.commands import SendSignal, StartExecution
from runnel.core.decide import attempts as task
from runnel.core.decide import maps as mapping
from runnel.core.decide import outcomes as finishing
from runnel.core.decide import task_dispatch as issue
from runnel.core.decide import waits as waiting
from runnel.core.decide.decision_context import DecisionContext
from runnel.core.effects import StoreOutput
from runnel.core.ids import NO_ITEM, NodeId, NodeRef, TaskToken
from runnel.core.values import NULL, Json, Value, make_blob_reference, make_value_from_json
from runnel.engine.worker import attempt
from runnel.engine.worker.config_templates import CompiledConfig
from runnel.ports.records import BlobStore
from simulation import server as inbox_module
from tests.simulation.bugs import Bug, Patch


def items_are_swapped(patch: Patch) -> None:
    real = issue._encode_item

    def swapped(context: DecisionContext, index: int, item: int) -> msgspec.Raw:
        if item != NO_ITEM:
            item = context.execution.maps[index].count - 1 - item
        return real(context, index, item)

    patch.setattr(issue, "_encode_item", swapped)


def outputs_are_swapped(patch: Patch) -> None:
    """Gives a task the outputs of its parents under each other's names."""
    real = issue._collect_outputs

    def swapped(
        turn: DecisionContext, needs: tuple[int, ...], shared: Mapping[str, Value]
    ) -> dict[NodeId, Value]:
        outputs = real(turn, needs, shared)
        return dict(zip(outputs, reversed(outputs.values()), strict=True))

    patch.setattr(issue, "_collect_outputs", swapped)


def results_are_joined_backwards(patch: Patch) -> None:
    real = mapping.join_inline_results
    patch.setattr(mapping, "join_inline_results", lambda results: real(results[::-1]))


def large_values_share_a_blob_key(patch: Patch) -> None:
    """Uses one blob key for the same node of all executions."""

    def shared(ref: NodeRef, _key: str, parts: list[Value]) -> StoreOutput:
        return StoreOutput(ref, f"large/{ref.node_id}", parts)

    patch.setattr(mapping, "StoreOutput", shared)
    patch.setattr(finishing, "StoreOutput", shared)


def config_is_resolved_once(patch: Patch) -> None:
    """Reuses the resolved config of the node's first task."""
    real = CompiledConfig.resolve
    resolved: dict[bytes, Json] = {}

    def once(self: CompiledConfig, scope: Any) -> Json:
        if self._data not in resolved:
            resolved[self._data] = real(self, scope)
        return resolved[self._data]

    patch.setattr(CompiledConfig, "resolve", once)


def large_output_is_written_after_its_report(patch: Patch) -> None:
    """Writes the blob 0.2 s after the report, so that readers may not find it."""

    async def store(data: bytes, token: TaskToken, blobs: BlobStore) -> Value:
        key = f"{token.execution_id}/{token.node_id}/{token.item}/{token.nonce}"
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, lambda: later.append(loop.create_task(blobs.put(key, data))))
        return make_blob_reference(key, len(data))

    later: list[asyncio.Task[None]] = []
    patch.setattr(attempt, "offload_result", store)


def child_gets_another_input(patch: Patch) -> None:
    real = waiting.send_create_child

    def other(turn: DecisionContext, index: int, item: int, child_input: Json) -> None:
        real(turn, index, item, {**child_input, "n": -1})

    patch.setattr(waiting, "send_create_child", other)


def output_of_a_child_is_lost(patch: Patch) -> None:
    real = waiting.convert_child_result

    def nothing(command: Any) -> Any:
        result = real(command)
        return NULL if isinstance(result, Value) else result

    patch.setattr(task, "convert_child_result", nothing)


def output_template_is_ignored(patch: Patch) -> None:
    def leaves(turn: DecisionContext) -> Value:
        return make_value_from_json(msgspec.json.encode(finishing._collect_leaf_outputs(turn)))

    patch.setattr(finishing, "_build_output", leaves)


def signal_comes_without_its_payload(patch: Patch) -> None:
    on_signal = decide_package._HANDLERS[SendSignal]

    def empty(turn: DecisionContext, command: SendSignal) -> None:
        on_signal(turn, msgspec.structs.replace(command, payload=NULL))

    patch.setitem(decide_package._HANDLERS, SendSignal, empty)


def input_of_the_start_is_ignored(patch: Patch) -> None:
    on_start = decide_package._HANDLERS[StartExecution]

    def bare(turn: DecisionContext, command: StartExecution) -> None:
        on_start(turn, msgspec.structs.replace(command, input=None))

    patch.setitem(decide_package._HANDLERS, StartExecution, bare)


def key_is_not_a_template(patch: Patch) -> None:
    """Ignores the template of a key, so that every node uses the same key."""
    patch.setattr(issue, "_evaluate_concurrency_key", lambda _turn, _index, _item: "one")


def empty_lists_become_objects(patch: Patch) -> None:
    """Encodes empty lists as Lua's cjson does."""
    patch.setattr(
        inbox_module,
        "encode_message",
        lambda command: encode_message(command).replace(b"[]", b"{}"),
    )


ALL: tuple[Bug, ...] = (
    items_are_swapped,
    outputs_are_swapped,
    results_are_joined_backwards,
    large_values_share_a_blob_key,
    config_is_resolved_once,
    large_output_is_written_after_its_report,
    child_gets_another_input,
    output_of_a_child_is_lost,
    output_template_is_ignored,
    signal_comes_without_its_payload,
    input_of_the_start_is_ignored,
    key_is_not_a_template,
    empty_lists_become_objects,
)
