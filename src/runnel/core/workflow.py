"""Workflows, their nodes and their limits: plain values that have a canonical encoded form."""

import functools
import hashlib
from enum import StrEnum

import msgspec

from runnel.core.ids import NO_ITEM, DefinitionHash, NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen, SkipReason, WhenNotMet
from runnel.core.values import INLINE_BYTES_MAX, SHARED_BYTES_MAX, Json, Value

DEFINITION_FORMAT = 1
TIMEOUT_S_DEFAULT = 300.0
CACHE_TTL_S_DEFAULT = 24 * 3600.0
# The highest priority; the lowest is the same number below zero.
PRIORITY_MAX = 100
# A worker kills stopped code after 5 s. The other 5 s are for the way to the worker and back.
STOP_S_DEFAULT = 10.0

SLEEP = "sleep"
WAIT_FOR_SIGNAL = "wait_for_signal"
CHILD_WORKFLOW = "workflow"
# The handlers that no worker runs. The core starts and settles nodes with these handlers itself.
CORE_HANDLERS = frozenset({SLEEP, WAIT_FOR_SIGNAL, CHILD_WORKFLOW})


class OnFailure(StrEnum):
    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit as a token bucket: at most `burst` tokens, refilled at `rate_per_second`."""

    rate_per_second: float = 10.0
    burst: int = 1


class Cache(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Allows a node to reuse the result of an earlier task with the same key, up to `ttl_seconds`.

    If `key` is None, the key covers the handler, its resolved config and the parents' outputs.
    """

    key: str | None = None
    ttl_seconds: float = CACHE_TTL_S_DEFAULT


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a workflow.

    `condition`, `for_each` and `concurrency_key` are expressions or templates.
    """

    id: NodeId
    handler: str
    config: dict[str, Json] = {}
    dependencies: tuple[NodeId, ...] = ()
    condition: str | None = None
    run_when: RunWhen = RunWhen.DEFAULT
    when_not_met: WhenNotMet = WhenNotMet.SKIP
    retry: RetryPolicy = RetryPolicy()
    timeout_seconds: float = TIMEOUT_S_DEFAULT
    soft_timeout_seconds: float | None = None
    resource_tag: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    for_each: str | None = None
    queue: str | None = None
    cache: Cache | None = None
    child: "Workflow | None" = None

    @property
    def task_queue(self) -> str:
        return f"tasks:{self.queue or self.handler}"


class Workflow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow definition without a version.

    The archive assigns a version when it stores the definition.
    """

    name: str
    nodes: tuple[Node, ...]
    input: dict[str, Json] | None = None
    on_failure: OnFailure = OnFailure.FAIL_FAST
    timeout_seconds: float | None = None
    sla_seconds: float | None = None
    max_concurrency: int | None = None
    priority: int = 0
    rate_limits: dict[str, RateLimit] = {}
    labels: dict[str, str] = {}
    output: Json = None
    format: int = DEFINITION_FORMAT


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Workflow)


def encode_workflow(workflow: Workflow) -> bytes:
    """Returns the canonical form of a workflow: equal workflows give equal bytes.

    The function encodes and decodes the workflow first, because 50 and 50.0 seconds are equal. The
    function also omits values that equal their default, because msgspec omits only those that *are*
    the default.
    """
    return _encoder.encode(_strip_defaults(_decoder.decode(_encoder.encode(workflow))))


def _strip_defaults(value: Json) -> Json:
    if isinstance(value, tuple):
        return [_strip_defaults(part) for part in value]
    if not isinstance(value, msgspec.Struct):
        return value
    return {
        name: _strip_defaults(field)
        for name, default in _list_defaults(type(value))
        if (field := getattr(value, name)) != default
    }


@functools.cache
def _list_defaults(kind: type[msgspec.Struct]) -> list[tuple[str, object]]:
    """Returns the name and default of each field of a struct.

    The result is cached, because computing it for every node took half the time of hashing a large
    workflow.
    """
    return [
        (
            field.name,
            field.default
            if field.default_factory is msgspec.NODEFAULT
            else field.default_factory(),
        )
        for field in msgspec.structs.fields(kind)
    ]


def decode_workflow(data: bytes) -> Workflow:
    return _decoder.decode(data)


def hash_workflow(workflow: Workflow) -> DefinitionHash:
    return hash_document(encode_workflow(workflow))


def hash_document(document: bytes) -> DefinitionHash:
    """Returns the hash of a definition.

    Expects the canonical form that `encode_workflow` returns.
    """
    return DefinitionHash(hashlib.sha256(document).hexdigest()[:32])


class EnginePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that apply to the decisions of all executions.

    `crashes_max` is the number of processes that may die while they run one task and no other.
    After that, the task fails and becomes a dead letter. `in_flight_max` bounds the issued tasks of
    one execution, and the running items of one map. A value above `shared_bytes_max` is offloaded
    to a blob before a map begins, if its copies in all items together exceed `inline_bytes_max`.
    Clean-up nodes wait at most `stop_s_max` for the code of cancelled tasks to end.
    """

    crashes_max: int = 3
    in_flight_max: int = 1_000
    inline_bytes_max: int = INLINE_BYTES_MAX
    shared_bytes_max: int = SHARED_BYTES_MAX
    map_items_max: int = 1_000_000
    stop_s_max: float = STOP_S_DEFAULT
    keeps_exhausted_tasks: bool = False
    """Whether a task whose retries are used up also goes to the dead letters (DLQ_POLICY=all)."""


class ReusedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one node or item that a rerun takes from the previous execution.

    Either `output` or the skip reason `skip` is set. If the node's own code raised Skip, `detail`
    is the message of that Skip.
    """

    node: NodeId
    item: int = NO_ITEM
    output: Value | None = None
    skip: SkipReason | None = None
    detail: str = ""
