"""Every link between pages of the repository has a target."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for place in (".", "docs", "examples", "bench")
    for path in (ROOT.glob("*.md") if place == "." else (ROOT / place).rglob("*.md"))
)


def text_of(path: Path) -> str:
    """Returns the page without its code blocks, which may look like links."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(path: Path) -> set[str]:
    """Returns the anchors that GitHub makes of the headings."""
    titles = re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_has_a_target(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(ROOT / page))

    for link in links:
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def test_every_page_is_on_the_map() -> None:
    text = text_of(ROOT / "docs/README.md")
    below = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    mapped = {Path(link) for link in re.findall(r"\]\(([^)#\s]+)\)", text)}

    assert {path for path in below if path.parts[0] != "adr"} - {Path("README.md")} <= mapped
