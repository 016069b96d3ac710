"""A durable document pipeline: a model extracts data, three tasks use it, a review joins two.

The model is a mock that needs no network. To call a real model, remove `mock` and set
RUNNEL_LLM_API_KEY. All executions together send at most ten requests per second; answers are cached
for a day. To continue a batch after a crash, run the same command again. Finished documents do not
run again.

Each task may run twice without harm. A file is written under another name and then renamed, so it
is never incomplete. A review is one row per document, and a field that a person has corrected is
locked: a later extraction does not change it.

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
    $ python examples/documents.py correct invoice-7 total 125
    $ runnel run examples/documents.py --input id=invoice-7 --input text='Total: 120 EUR'
    {
      "document": "invoice-7",
      "files": [
        "extracted/invoice-7.csv",
        "extracted/invoice-7.json"
      ],
      "needs_a_person": false
    }
    $ python examples/documents.py show invoice-7
    confidence 0.93
    total 125 locked
    $ runnel batch examples/documents.py --inputs examples/documents.jsonl --id-field id
    documents.jsonl: 5 documents: 5 completed
      5 documents in … s, … per hour; p50 … s, p95 … s
    $ runnel batch examples/documents.py --inputs examples/documents.jsonl --id-field id
    documents.jsonl: 5 documents: 5 completed
      5 had ended before this run
"""

import csv
import io
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from runnel import Context, RateLimit, handler, task, workflow

FOLDER = Path("extracted")
CONFIDENCE_MIN = 0.8

ask_model = handler("llm_service", resource_tag="model", cache=True, retries=3)


@task
def save_table(id: str, data: dict[str, Any]) -> str:
    table = io.StringIO(newline="")
    csv.writer(table).writerows(data.items())
    return _write_atomically(f"{id}.csv", table.getvalue())


@task
def save_json(id: str, data: dict[str, Any]) -> str:
    return _write_atomically(f"{id}.json", json.dumps(data) + "\n")


@task
def record_metrics(data: dict[str, Any], ctx: Context | None = None) -> None:
    """Tests may call the function without a context."""
    if ctx is not None:
        ctx.metrics.observe("extraction_confidence", data["confidence"])


@task
def create_review(id: str, files: list[str], data: dict[str, Any]) -> dict[str, Any]:
    needs_a_person = data["confidence"] < CONFIDENCE_MIN
    with _open_reviews() as reviews:
        reviews.execute(UPSERT_REVIEW, (id, needs_a_person))
        reviews.executemany(
            UPSERT_FIELD, [(id, name, json.dumps(value)) for name, value in data.items()]
        )
    return {"document": id, "files": files, "needs_a_person": needs_a_person}


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


def correct(id: str, field: str, value: str) -> None:
    """Stores the value that a person has entered, and locks the field."""
    with _open_reviews() as reviews:
        reviews.execute(LOCK_FIELD, (id, field, value))


def show(id: str) -> None:
    with _open_reviews() as reviews:
        for name, value, is_locked in reviews.execute(SELECT_FIELDS, (id,)):
            print(name, value, *(["locked"] if is_locked else []))


UPSERT_REVIEW = """
INSERT INTO reviews (document_id, needs_a_person) VALUES (?, ?)
ON CONFLICT (document_id) DO UPDATE SET needs_a_person = excluded.needs_a_person
"""
UPSERT_FIELD = """
INSERT INTO fields (document_id, name, value) VALUES (?, ?, ?)
ON CONFLICT (document_id, name) DO UPDATE SET value = excluded.value WHERE NOT is_locked
"""
LOCK_FIELD = """
INSERT INTO fields (document_id, name, value, is_locked) VALUES (?, ?, ?, true)
ON CONFLICT (document_id, name) DO UPDATE SET value = excluded.value, is_locked = true
"""
SELECT_FIELDS = "SELECT name, value, is_locked FROM fields WHERE document_id = ? ORDER BY name"
SCHEMA = """
CREATE TABLE IF NOT EXISTS reviews (
    document_id TEXT PRIMARY KEY, needs_a_person BOOLEAN NOT NULL
);
CREATE TABLE IF NOT EXISTS fields (
    document_id TEXT, name TEXT, value TEXT NOT NULL, is_locked BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (document_id, name)
);
"""


@contextmanager
def _open_reviews() -> Iterator[sqlite3.Connection]:
    """Opens the database of reviews; the block is one transaction."""
    FOLDER.mkdir(exist_ok=True)
    with closing(sqlite3.connect(FOLDER / "reviews.db", timeout=30)) as connection:
        connection.executescript(SCHEMA)
        with connection:
            yield connection


def _write_atomically(name: str, text: str) -> str:
    """Writes a new file and renames it, so that no reader sees an incomplete file."""
    if Path(name).name != name:
        raise ValueError(f"{name} would be written to another folder")
    FOLDER.mkdir(exist_ok=True)
    with NamedTemporaryFile("w", dir=FOLDER, newline="", delete=False) as part:
        part.write(text)
    return str(Path(part.name).replace(FOLDER / name))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    correct(*arguments) if command == "correct" else show(*arguments)
