"""What a user describes: a workflow of nodes, as plain values with a canonical form and a hash."""

import functools
import hashlib
from enum import StrEnum

import msgspec

from runnel.core.ids import DefinitionHash, NodeId
from runnel.core.json_types import Json
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen

FORMAT = 1
TIMEOUT_S_DEFAULT = 300.0
CACHE_TTL_S_DEFAULT = 24 * 3600.0

SLEEP = "sleep"
WAIT_FOR_SIGNAL = "wait_for_signal"
CHILD_WORKFLOW = "workflow"
# These never reach a worker: the core itself waits, and settles them.
CORE_HANDLERS = frozenset({SLEEP, WAIT_FOR_SIGNAL, CHILD_WORKFLOW})


class OnFailure(StrEnum):
    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A token bucket: `burst` tokens at most, refilled at `rate_per_second`."""

    rate_per_second: float = 10.0
    burst: int = 1


class Cache(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A result may be that of an earlier task with the same key, if it is younger than this.

    Without a `key` it is what the task gets: handler, resolved config, its parents' outputs.
    """

    key: str | None = None
    ttl_seconds: float = CACHE_TTL_S_DEFAULT


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step. `condition`, `for_each` and `concurrency_key` are expressions or templates."""

    id: NodeId
    handler: str
    config: dict[str, Json] = {}
    dependencies: tuple[NodeId, ...] = ()
    condition: str | None = None
    run_when: RunWhen = RunWhen.DEFAULT
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
    """A definition, before it has a version: that is given when it is stored."""

    name: str
    nodes: tuple[Node, ...]
    input: dict[str, Json] | None = None
    on_failure: OnFailure = OnFailure.FAIL_FAST
    timeout_seconds: float | None = None
    sla_seconds: float | None = None
    max_concurrency: int | None = None
    rate_limits: dict[str, RateLimit] = {}
    labels: dict[str, str] = {}
    output: Json = None
    format: int = FORMAT


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Workflow)


def encode_workflow(workflow: Workflow) -> bytes:
    """The canonical form: equal workflows give equal bytes.

    There and back first, because 50 and 50.0 seconds are the same; then without what equals its
    default, because msgspec leaves out only what *is* the default.
    """
    return _encoder.encode(_without_defaults(_decoder.decode(_encoder.encode(workflow))))


def _without_defaults(value: Json) -> Json:
    if isinstance(value, tuple):
        return [_without_defaults(each) for each in value]
    if not isinstance(value, msgspec.Struct):
        return value
    return {
        name: _without_defaults(found)
        for name, default in _defaults_of(type(value))
        if (found := getattr(value, name)) != default
    }


@functools.cache
def _defaults_of(kind: type[msgspec.Struct]) -> list[tuple[str, object]]:
    """Cached: looking this up for every node was half the time of hashing a large workflow."""
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
    return DefinitionHash(hashlib.sha256(encode_workflow(workflow)).hexdigest()[:32])
