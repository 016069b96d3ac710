"""`python -m tools.reference`: writes every page that is generated from the code."""

from pathlib import Path

from tools.reference.commands import commands_page
from tools.reference.errors import errors_page
from tools.reference.fields import fields_page
from tools.reference.python import python_page

FOLDER = Path(__file__).parents[2] / "docs/reference"
PAGES = {
    "commands.md": commands_page,
    "errors.md": errors_page,
    "fields.md": fields_page,
    "python.md": python_page,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
