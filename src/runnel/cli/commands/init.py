"""`runnel init [DIR]`"""

from pathlib import Path
from typing import Annotated

import typer

from runnel.errors import InputError

# Each file of a new project, and its template. A template in Python has no suffix `.py`, so that
# no tool takes it for a module of Runnel.
TEMPLATE_BY_FILE = {
    "flow.py": "flow.py.txt",
    "test_flow.py": "test_flow.py.txt",
    ".gitignore": "gitignore.txt",
}


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            help="The directory of the project; created if it does not exist.",
            show_default=".",
        ),
    ] = Path(),
) -> None:
    """Create a project with a workflow, its tasks and tests.

    Existing files are never changed.
    """
    try:
        existing = [name for name in TEMPLATE_BY_FILE if (folder / name).exists()]
        if existing:
            raise InputError(
                f"{folder}: {', '.join(existing)} would be overwritten; name another directory"
            )
        _write_project(folder)
    except OSError as error:
        raise InputError(f"{folder}: the project can't be made: {error.strerror}") from error
    print(f"made: {', '.join(str(folder / name) for name in TEMPLATE_BY_FILE)}")
    print("next:")
    if folder != Path():
        print(f"  cd {folder}")
    print("  runnel run flow.py")
    print('  runnel run flow.py --input text="to be or not to be"')
    print("  pytest")


def _write_project(folder: Path) -> None:
    source = Path(__file__).with_name("project")
    folder.mkdir(parents=True, exist_ok=True)
    for name, origin in TEMPLATE_BY_FILE.items():
        text = (source / origin).read_text(encoding="utf-8")
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
