"""A chat completion as a config describes it: what is sent, where, and with which key."""

from collections.abc import Mapping

import msgspec

from runnel.core.json_types import Json
from runnel.handlers.http.wanted import Wanted, in_header, limits_of
from runnel.handlers.means import Means

# Models take their time; the node's own timeout_seconds is 300 unless it says otherwise.
TIMEOUT_S = 120.0
PATH = "/chat/completions"
PASSED_ON = ("model", "temperature", "max_tokens", "response_format")
# Kept beside the service's: an answer to a prompt may come with it.
REDIRECTS = 0


def wanted_of(config: Mapping[str, Json], means: Means, *, idempotency_key: str) -> Wanted:
    """Of a config that was checked.

    The operator's key goes to the operator's address only: with a base_url of its own, a config
    has to bring a key of its own.
    """
    base = config.get("base_url", means.llm_url)
    key = config.get("api_key", means.llm_api_key if "base_url" not in config else None)
    given = {name.lower(): str(value) for name, value in config.get("headers", {}).items()}
    headers = {"content-type": "application/json", "idempotency-key": in_header(idempotency_key)}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    limits = limits_of(config, total_s=TIMEOUT_S)
    return Wanted(
        method="POST",
        url=base.rstrip("/") + PATH,
        headers={**headers, **given},
        content=msgspec.json.encode(_request(config)),
        limits=msgspec.structs.replace(limits, redirects=REDIRECTS),
        kind="json",
    )


def messages_of(config: Mapping[str, Json]) -> list[Json]:
    if "messages" in config:
        return list(config["messages"])
    system = [{"role": "system", "content": config["system"]}] if "system" in config else []
    return [*system, {"role": "user", "content": config["prompt"]}]


def wants_json(config: Mapping[str, Json]) -> bool:
    kind = config.get("response_format", {}).get("type")
    return kind in {"json_object", "json_schema"}


def _request(config: Mapping[str, Json]) -> Json:
    request = {name: config[name] for name in PASSED_ON if name in config}
    request["messages"] = messages_of(config)
    if config.get("stream", False):
        request["stream"] = True
        request["stream_options"] = {"include_usage": True}
    return {**request, **config.get("extra", {})}
