"""docs/guides/http.md: every command is sent to a server on a free port."""

import shutil
from pathlib import Path

from runnel.app.private_servers.server import find_free_port
from runnel.engine.clock import RandomIdGenerator
from tests.conftest import MissingPart
from tests.docs.console import console, steps_of
from tests.docs.page_commands import PageCommands

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "http.md"
PORT = "8080"


def test_the_page_does_what_it_shows(
    tmp_path: Path, program_forks: PageCommands, missing_part: MissingPart
) -> None:
    if shutil.which("curl") is None:
        missing_part("curl", "it is not on the PATH")
    port = str(find_free_port(RandomIdGenerator()))
    text = PAGE.read_text(encoding="utf-8")
    steps = steps_of(text.replace(f"localhost:{PORT}", f"localhost:{port}"))

    with console(tmp_path, program_forks, RUNNEL_API_PORT=port) as terminal:
        for step in steps:
            terminal.follow(step)

    assert len(steps) > 10
