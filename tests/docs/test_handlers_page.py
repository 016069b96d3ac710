"""docs/reference/handlers.md: its examples run against a real server, its lists are complete."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from runnel.app.embedded_engine import run_engine
from runnel.app.wiring import build_engine
from runnel.authoring.documents import load_file
from runnel.core.validation.handler_settings import (
    HANDLER_SETTINGS,
    HTTP_CHECKS,
    LLM_CHECKS,
    SHELL_CHECKS,
)
from runnel.core.values import Json
from runnel.handlers import llm as llm_handler
from runnel.handlers.environment import LLM_URL
from runnel.handlers.http import request as http_request
from runnel.handlers.shell import INHERITED_VARIABLES, NOT_RUNNABLE_EXIT_CODES, OUTPUT_BYTES_MAX
from runnel.settings import read_settings
from runnel.settings.model import Settings
from runnel.settings.variables import VARIABLES
from tests.engines import run_to_end
from tests.scripted_http_server import make_json_answer, open_scripted_server

PAGE = (Path(__file__).parents[2] / "docs/reference/handlers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n# (\w+\.yaml)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SAID = (
    b'{"model": "small-1", "usage": {"prompt_tokens": 9, "completion_tokens": 3},'
    b' "choices": [{"message": {"content": "{\\"sentiment\\": \\"good\\"}"}}]}'
)
RESULTS: dict[str, tuple[Json, Json]] = {
    "orders.yaml": ({}, {"orders": 2, "total": 42}),
    "review.yaml": ({"text": "Splendid"}, {"sentiment": "good", "tokens": 12}),
    "tried.yaml": ({}, "This is a mock completion of: Summarise: A long story"),
    "count.yaml": ({"words": ["b", "a", "b"]}, ["a", "b"]),
}
ENVIRONMENT = {
    "RUNNEL_ALLOW_PRIVATE_ADDRESSES": "127.0.0.1",
    "RUNNEL_SECRET_SHOP_TOKEN": "shop-token",
    "RUNNEL_SECRET_LLM_KEY": "llm-key-1",
}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> dict[str, str]:
    """Returns the settings of a section with their defaults."""
    lines = [
        line.strip("|").split("|") for line in section(title).splitlines() if line[:3] == "| `"
    ]
    return {name: cells[1].strip() for cells in lines for name in re.findall(r"`(\w+)`", cells[0])}


async def test_every_example_runs(tmp_path: Path) -> None:
    settings = read_settings({**ENVIRONMENT, "RUNNEL_DATA_DIR": str(tmp_path / "data")})
    outputs = {}
    async with open_scripted_server() as server, run_engine(await build_engine(settings)) as engine:
        server.says("/orders", make_json_answer(b'[{"total": 40}, {"total": 2}]'))
        server.says("/v1/chat/completions", make_json_answer(SAID))
        for name, text in BLOCKS:
            (tmp_path / name).write_text(text.replace("https://api.example.com", server.url("")))
            view = await run_to_end(engine, load_file(tmp_path / name), RESULTS[name][0])
            outputs[name] = view.output
        keys = [request.headers["authorization"] for request in server.requests]

    assert outputs == {name: output for name, (_, output) in RESULTS.items()}
    assert keys == ["Bearer shop-token", "Bearer llm-key-1"]


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("`call_external_service`", HTTP_CHECKS),
        ("`llm_service`", LLM_CHECKS),
        ("`shell`", SHELL_CHECKS),
    ],
)
def test_every_setting_is_listed(title: str, settings: Mapping[str, object]) -> None:
    assert set(rows(title)) == set(settings)
    assert set(HANDLER_SETTINGS[title.strip("`")] or ()) == set(settings)


def test_the_defaults_are_those_of_the_code() -> None:
    http, llm, shell = (
        rows(f"`{name}`") for name in ("call_external_service", "llm_service", "shell")
    )

    assert http["timeout_seconds"] == f"{http_request.TIMEOUT_S:g}"
    assert http["connect_timeout_seconds"] == f"{http_request.CONNECT_TIMEOUT_S:g}"
    assert http["max_redirects"] == str(http_request.REDIRECTS_MAX)
    assert http["max_response_bytes"] == str(http_request.RESPONSE_BYTES_MAX)
    assert http["ok_statuses"] == str(list(http_request.OK_STATUSES))
    assert http["retry_statuses"] == str(list(http_request.RETRIED_STATUSES))
    assert llm["timeout_seconds"] == f"{llm_handler.TIMEOUT_S:g}"
    assert shell["max_output_bytes"] == str(OUTPUT_BYTES_MAX)
    assert shell["no_retry_exit_codes"] == str(list(NOT_RUNNABLE_EXIT_CODES))
    assert Settings().llm_url == LLM_URL


def test_every_permission_is_listed() -> None:
    named = {name for name in VARIABLES if name.startswith("RUNNEL_ALLOW_")}

    assert named == set(rows("What an operator allows"))


def test_every_variable_that_a_program_sees_is_named() -> None:
    cell = next(line for line in section("`shell`").splitlines() if line.startswith("| `env`"))

    assert all(name in cell for name in INHERITED_VARIABLES)
