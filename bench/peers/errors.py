"""Errors of peers."""

LINE_CHARS_MAX = 300


class PeerError(Exception):
    """One peer has no figures. Other peers are not affected."""


class PeerMissingError(PeerError):
    def __init__(self, environment: str, *, reason: str) -> None:
        super().__init__(
            f"{environment} can't be installed and is skipped: {get_last_line(reason)}"
        )


class PeerFailedError(PeerError):
    def __init__(self, peer: str, workload: str, *, problem: str, log: str = "") -> None:
        last_line = get_last_line(log)
        details = f": {last_line}" if last_line else ""
        super().__init__(f"{peer}, {workload}: {problem}{details}")


class UnknownPeerError(PeerError):
    def __init__(self, kind: str, name: str, *, known: tuple[str, ...]) -> None:
        super().__init__(f"no {kind} is called {name!r}: choose one of {', '.join(known)}")


def get_last_line(text: str) -> str:
    """Returns the last line, truncated. pip and tracebacks name the problem there."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LINE_CHARS_MAX] if lines else ""
