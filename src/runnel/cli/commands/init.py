"""`runnel init [DIR]`"""

from pathlib import Path
from typing import Annotated

import typer

from runnel.cli import errors as exits

# What is made, by the name of what it is made from: Python that is not ours has no `.py` here.
TEMPLATE_BY_FILE = {
    "flow.py": "flow.py.txt",
    "test_flow.py": "test_flow.py.txt",
    ".gitignore": "gitignore.txt",
}


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="[DIR]", help="Where; it is made if need be.", show_default="."),
    ] = Path(),
) -> int:
    """Begin a project: a workflow, its tasks, and tests that pass.

    Nothing that is there is changed.
    """
    from runnel.errors import InputError

    try:
        there = [name for name in TEMPLATE_BY_FILE if (folder / name).exists()]
        if there:
            raise InputError(
                f"{folder}: {', '.join(there)} would be overwritten; name another directory"
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
    return exits.OK


def _write_project(folder: Path) -> None:
    source = Path(__file__).with_name("project")
    folder.mkdir(parents=True, exist_ok=True)
    for name, origin in TEMPLATE_BY_FILE.items():
        text = (source / origin).read_text(encoding="utf-8")
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(text)
