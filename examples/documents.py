"""A durable document pipeline: a model extracts data, three tasks use it, a review joins two.

The model is a mock that needs no network. To call a real model, remove `mock` and set
RUNNEL_LLM_API_KEY. All executions together send at most ten requests per second; answers are cached
for a day. To continue a batch after a crash, run the same command again. Finished documents do not
run again.

    $ runnel run examples/documents.py --input id=invoice-7 --input text='Total: 120 EUR'
    {
      "document": "invoice-7",
      "files": [
        "extracted/invoice-7.csv",
        "extracted/invoice-7.json"
      ],
      "needs_a_person": false
    }
    $ cat extracted/invoice-7.json
    {"confidence": 0.93, "total": 120}
    $ runnel batch examples/documents.py --inputs examples/documents.jsonl --id-field id
    documents.jsonl: 5 documents: 5 completed
      5 documents in … s, … per hour; p50 … s, p95 … s
    $ runnel batch examples/documents.py --inputs examples/documents.jsonl --id-field id
    documents.jsonl: 5 documents: 5 completed
      5 had ended before this run
"""

import csv
import json
from pathlib import Path
from typing import Any

from runnel import Context, RateLimit, handler, task, workflow

FOLDER = Path("extracted")
CONFIDENCE_MIN = 0.8

ask_model = handler("llm_service", resource_tag="model", cache=True, retries=3)


@task
def save_table(id: str, data: dict[str, Any]) -> str:
    path = _make_path(f"{id}.csv")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(data.items())
    return str(path)


@task
def save_json(id: str, data: dict[str, Any]) -> str:
    path = _make_path(f"{id}.json")
    path.write_text(json.dumps(data) + "\n")
    return str(path)


@task
def record_metrics(data: dict[str, Any], ctx: Context | None = None) -> None:
    """Tests may call the function without a context."""
    if ctx is not None:
        ctx.metrics.gauge("extraction_confidence", data["confidence"])


@task
def create_review(id: str, files: list[str], data: dict[str, Any]) -> dict[str, Any]:
    return {"document": id, "files": files, "needs_a_person": data["confidence"] < CONFIDENCE_MIN}


@workflow(rate_limits={"model": RateLimit(rate_per_second=10, burst=1)})
def documents(id: str, text: str) -> Any:
    answer = ask_model(
        model="small-1",
        system="Answer in JSON with the keys total and confidence.",
        prompt=text,
        response_format={"type": "json_object"},
        mock={"delay": 0.1, "response": {"total": 120, "confidence": 0.93}},
    )
    data = answer["json"]
    record_metrics(data)
    return create_review(id, [save_table(id, data), save_json(id, data)], data)


def _make_path(name: str) -> Path:
    if Path(name).name != name:
        raise ValueError(f"{name} would be written to another folder")
    FOLDER.mkdir(exist_ok=True)
    return FOLDER / name
