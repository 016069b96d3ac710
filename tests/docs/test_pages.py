"""Tutorial, guides and explanation: every file is written, every command is run."""

import re
from pathlib import Path

import pytest

from runnel.core.states import NODE_MOVES, NodeState
from tests.docs.console import BLOCK, Command, File, console, steps_of
from tests.docs.page_commands import PageCommands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Guides without console commands, or with commands that another test runs.
OTHER_GUIDES = {"coming-from.md", "dead-letters.md", "http.md", "servers.md", "sql.md"}
PAGES = [
    *("tutorial.md", "explanation/how-it-works.md"),
    *(
        f"guides/{path.name}"
        for path in sorted(DOCS.glob("guides/*.md"))
        if path.name not in OTHER_GUIDES
    ),
]
CODE_LINES_MAX = 12
# Snippets of other pages, and the test that checks them.
ELSEWHERE = {
    "README.md": {"console", "bash", "python", "yaml"},  # test_readme.py, test_servers_page.py
    "CONTRIBUTING.md": {"console"},  # set-up commands, which no test runs
    "docs/adr/README.md": {"markdown"},  # a template
    "docs/guides/dead-letters.md": {"bash"},  # test_letters_page.py
    "docs/reference/handlers.md": {
        "yaml",
        "bash",
    },  # test_handlers_page.py; settings of the environment
    "docs/guides/http.md": {"console", "yaml"},  # test_http_page.py
    "docs/guides/sql.md": {"sql"},  # test_sql_page.py
    "docs/guides/servers.md": {"bash", "python", "json"},  # test_servers_page.py
}


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_shows(page: str, tmp_path: Path, program_forks: PageCommands) -> None:
    steps = steps_of(text_of(page))

    with console(tmp_path, program_forks) as terminal:
        for step in steps:
            terminal.follow(step)

    assert any(isinstance(step, Command) for step in steps)


@pytest.mark.parametrize("page", PAGES)
def test_no_snippet_of_a_page_is_left_out(page: str) -> None:
    for kind, text in BLOCK.findall(text_of(page)):
        assert kind == "mermaid" or steps_of(f"```{kind}\n{text}```\n"), text


def test_every_snippet_outside_these_pages_has_a_test() -> None:
    kinds_by_page = {
        path.relative_to(ROOT).as_posix(): {kind for kind, _ in BLOCK.findall(path.read_text())}
        for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    }
    mine = {f"docs/{page}" for page in PAGES}

    assert {
        page: kinds for page, kinds in kinds_by_page.items() if kinds and page not in mine
    } == ELSEWHERE


def test_the_workflow_of_the_tutorial_is_short_and_is_killed() -> None:
    steps = steps_of(text_of("tutorial.md"))
    (program,) = [step for step in steps if isinstance(step, File)]
    lines = [line for line in program.text.splitlines()[1:] if line.strip()]

    assert len(lines) <= CODE_LINES_MAX
    assert "kill -9 $!" in [step.line for step in steps if isinstance(step, Command)]


def test_the_state_diagram_shows_only_moves_of_the_engine() -> None:
    moves = re.findall(
        r"^ +([A-Z]+) --> ([A-Z]+)", text_of("explanation/how-it-works.md"), re.MULTILINE
    )

    assert len(moves) > len(NodeState)
    assert all(NodeState(target) in NODE_MOVES[NodeState(source)] for source, target in moves)
