"""`python -m tools.reference`: writes every page that is generated from the code."""

from pathlib import Path

from tools.reference.commands import build_commands_page
from tools.reference.errors import build_errors_page
from tools.reference.fields import build_fields_page
from tools.reference.python import build_python_page

FOLDER = Path(__file__).parents[2] / "docs/reference"
PAGES = {
    "commands.md": build_commands_page,
    "errors.md": build_errors_page,
    "fields.md": build_fields_page,
    "python.md": build_python_page,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
