"""What of an execution is to run again, as requests have it."""

import msgspec

from runnel.authoring.payloads import encode_payload
from runnel.core.json_types import Json
from runnel.reruns import Rerun


def wish_of(wanted: Rerun) -> dict[str, Json]:
    return {
        "nodes": list(wanted.again),
        "whole": wanted.is_whole,
        "newest": wanted.is_newest,
        "configs": {
            node: msgspec.Raw(encode_payload(config, where=f"configs.{node}"))
            for node, config in wanted.configs.items()
        },
    }
