"""Documents: a model reads one, three steps use what it found, a review waits for two of them.

The model is a mock that needs no network; with `mock` taken out and RUNNEL_LLM_API_KEY set it is a
real one. It is asked ten times per second at most, over all executions; answers are kept for a day.
A batch that was killed goes on with the same command: what is done is not done again.

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
      5 were done before
"""

import csv
import json
from pathlib import Path
from typing import Any

from runnel import Context, RateLimit, handler, task, workflow

FOLDER = Path("extracted")
SURE = 0.8

ask_model = handler("llm_service", resource_tag="model", cache=True, retries=3)


@task
def save_table(id: str, found: dict[str, Any]) -> str:
    path = _new_file(f"{id}.csv")
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(found.items())
    return str(path)


@task
def save_json(id: str, found: dict[str, Any]) -> str:
    path = _new_file(f"{id}.json")
    path.write_text(json.dumps(found) + "\n")
    return str(path)


@task
def record_metrics(found: dict[str, Any], ctx: Context | None = None) -> None:
    """A test that calls it has no context."""
    if ctx is not None:
        ctx.metrics.gauge("extraction_confidence", found["confidence"])


@task
def create_review(id: str, files: list[str], found: dict[str, Any]) -> dict[str, Any]:
    return {"document": id, "files": files, "needs_a_person": found["confidence"] < SURE}


@workflow(rate_limits={"model": RateLimit(rate_per_second=10, burst=1)})
def documents(id: str, text: str) -> Any:
    answer = ask_model(
        model="small-1",
        system="Answer in JSON with the keys total and confidence.",
        prompt=text,
        response_format={"type": "json_object"},
        mock={"delay": 0.1, "response": {"total": 120, "confidence": 0.93}},
    )
    found = answer["json"]
    record_metrics(found)
    return create_review(id, [save_table(id, found), save_json(id, found)], found)


def _new_file(name: str) -> Path:
    if Path(name).name != name:
        raise ValueError(f"{name} would be written to another folder")
    FOLDER.mkdir(exist_ok=True)
    return FOLDER / name
