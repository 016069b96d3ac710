"""Something that must never happen, and did."""


class Broken(Exception):  # noqa: N818  # a finding, not a mistake of the caller
    """`check` is the name of the invariant; the message says who broke it and how."""

    def __init__(self, check: str, problem: str) -> None:
        super().__init__(f"{check}: {problem}")
        self.check = check
        self.problem = problem
