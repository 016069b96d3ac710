"""Where in a document the reader is: each problem goes to one list, with its path before it."""

from runnel.core.checks.wording import printable, shown
from runnel.core.json_types import Json

PROBLEMS_MAX = 100


class TooManyProblemsError(Exception):
    """Ends the reading of a document that has little right in it."""


class Place:
    """`nodes[2].retry` and the like; `lead` tells how the reader came to the document."""

    __slots__ = ("_lead", "path", "problems")

    def __init__(
        self, path: str = "", *, lead: str = "", problems: list[str] | None = None
    ) -> None:
        self.path = path
        self.problems: list[str] = [] if problems is None else problems
        self._lead = lead

    def key(self, name: str) -> "Place":
        step = name if name.isidentifier() else f"[{shown(name)}]"
        joint = "." if self.path and step is name else ""
        return Place(f"{self.path}{joint}{step}", lead=self._lead, problems=self.problems)

    def item(self, index: int) -> "Place":
        return Place(f"{self.path}[{index}]", lead=self._lead, problems=self.problems)

    def file(self, name: str) -> "Place":
        """The root of another document, which this place names."""
        return Place(lead=f"{self._lead}{self.path} → {name}: ", problems=self.problems)

    def expected(self, what: str, got: Json) -> None:
        self.refuse(f"expected {what}, got {shown(got)}")

    def refuse(self, problem: str) -> None:
        """Raises TooManyProblemsError when a hundred have been found already."""
        if len(self.problems) >= PROBLEMS_MAX:
            more = f"there are more than these {PROBLEMS_MAX} problems; mend these first"
            self.problems.append(more)
            raise TooManyProblemsError
        path = f"{self.path}: " if self.path else ""
        self.problems.append(printable(f"{self._lead}{path}{problem}"))
