"""A finished execution once more: the commands that make it, from what the caller wants."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import msgspec

from runnel.authoring.payloads import encode_payload
from runnel.client.values import Carrier
from runnel.core.commands import Command, CreateExecution, StartExecution, TakeOver
from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId, NodeId
from runnel.core.rerun import take
from runnel.core.states import ExecutionState
from runnel.core.validation import find_problems
from runnel.core.values import Json
from runnel.core.wording import name_hint, printable, quoted
from runnel.core.workflow import CORE_HANDLERS, Taken
from runnel.errors import InputError, InvalidWorkflowError, WrongStateError
from runnel.ports.store import NO_BLOBS

# Of one command, which is one message and one history entry; and of what it refers to.
PART_BYTES = 256 * 1024
PART_BLOB_BYTES = 8 * 1024 * 1024
# Sent together: each is at most a few hundred kilobytes.
MESSAGES_AT_ONCE = 16

_encode = msgspec.json.encode


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run again: what did not complete, the nodes named in `again`, and all behind.

    `is_whole` runs everything; None leaves that to the execution: a completed one, or one that
    gets another input, is run whole unless nodes are named. `configs` replace those of nodes.
    `is_newest` follows the newest version of the workflow: what that has changed is run, too.
    """

    again: Sequence[str] = ()
    is_whole: bool | None = None
    is_newest: bool = False
    configs: Mapping[str, Json] = {}


def check_rerunnable(former: Execution) -> None:
    """Raises WrongStateError."""
    if former.parent is not None:
        raise WrongStateError(
            f"execution {former.id} is a child of {former.parent.execution_id}: rerun that one, "
            f"from node '{former.parent.node_id}'"
        )
    if not former.is_final:
        raise WrongStateError(
            f"execution {former.id} is {former.state}, only a finished one can be rerun: "
            "wait for its end, or cancel it"
        )


def take_overs(
    former: Execution, graph: Graph, wanted: Rerun, execution_id: ExecutionId, *, has_input: bool
) -> list[TakeOver]:
    """What a new execution of `graph` is told before it starts; raises InputError."""
    again = [*wanted.again, *wanted.configs]
    unknown = next((name for name in again if name not in graph.index), None)
    if unknown is not None:
        raise InputError(
            f"workflow {quoted(graph.workflow.name)} has no node '{printable(unknown)}'"
            f"{name_hint(unknown, graph.index)}"
        )
    configs = _configs(graph, wanted.configs)
    is_whole = wanted.is_whole
    if is_whole is None:
        is_whole = not again and (has_input or former.state is ExecutionState.COMPLETED)
    if is_whole:
        return [TakeOver(execution_id=execution_id, configs=configs)] if configs else []
    names = [NodeId(name) for name in again]
    taken = take(former, graph, again=names, is_same_input=not has_input)
    parts = [
        TakeOver(execution_id=execution_id, part=number, taken=part)
        for number, part in enumerate(_parts(taken), start=1)
    ]
    edited = [TakeOver(execution_id=execution_id, configs=configs)] if configs else []
    return [*edited, *parts]


async def pages_of(
    command: CreateExecution,
    parts: Sequence[TakeOver],
    carrier: Carrier,
    blobs: Mapping[str, bytes],
) -> AsyncIterator[tuple[Sequence[Command], Mapping[str, bytes]]]:
    """All messages of a rerun, and the blobs to be sent with them; `blobs` are the command's."""
    page: list[Command] = [command]
    for part in parts:
        own, part_blobs = await _with_own_blobs(part, carrier)
        page.append(own)
        blobs = {**blobs, **part_blobs}
        if len(page) == MESSAGES_AT_ONCE or sum(map(len, blobs.values())) > PART_BLOB_BYTES:
            yield page, blobs
            page, blobs = [], NO_BLOBS
    if parts:
        page.append(StartExecution(execution_id=command.execution_id, parts=len(parts)))
    yield page, blobs


async def _with_own_blobs(part: TakeOver, carrier: Carrier) -> tuple[TakeOver, Mapping[str, bytes]]:
    """The same with large outputs as blobs of the new execution, and those blobs."""
    taken: list[Taken] = []
    blobs: dict[str, bytes] = {}
    for each in part.taken:
        if each.output is None or each.output.blob is None:
            taken.append(each)
            continue
        value, own = await carrier.copied(each.output, part.execution_id)
        taken.append(msgspec.structs.replace(each, output=value))
        blobs.update(own)
    return msgspec.structs.replace(part, taken=taken), blobs


def _parts(taken: Iterator[Taken]) -> Iterator[list[Taken]]:
    part: list[Taken] = []
    size = blob_size = 0
    for each in taken:
        own, own_blob = len(_encode(each)), _blob_size(each)
        if part and (size + own > PART_BYTES or blob_size + own_blob > PART_BLOB_BYTES):
            yield part
            part, size, blob_size = [], 0, 0
        part.append(each)
        size, blob_size = size + own, blob_size + own_blob
    if part:
        yield part


def _blob_size(taken: Taken) -> int:
    return taken.output.size if taken.output is not None and taken.output.blob is not None else 0


def _configs(graph: Graph, configs: Mapping[str, Json]) -> dict[NodeId, msgspec.Raw]:
    """Judged as if the workflow had them; raises InvalidWorkflowError."""
    if not configs:
        return {}
    nodes = []
    for node in graph.workflow.nodes:
        if node.id in configs and node.handler in CORE_HANDLERS:
            raise InputError(
                f"node '{node.id}': the config of a '{node.handler}' can't be replaced, "
                "only that of a node that a worker runs"
            )
        given = configs.get(node.id, node.config)
        if not isinstance(given, dict):
            raise InputError(f"node '{node.id}': expected a config, which is a JSON object")
        nodes.append(msgspec.structs.replace(node, config=given))
    changed = msgspec.structs.replace(graph.workflow, nodes=tuple(nodes))
    problems = find_problems(changed)
    if problems:
        raise InvalidWorkflowError(problems, source=f"workflow {quoted(changed.name)}")
    return {
        NodeId(name): msgspec.Raw(encode_payload(config, where=f"the config of '{name}'"))
        for name, config in configs.items()
    }
