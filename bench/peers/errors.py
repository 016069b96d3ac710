"""What can go wrong with a peer, in one sentence each."""

LINE_CHARS_MAX = 300


class PeerError(Exception):
    """One peer has no figures; those of the others are not touched by that."""


class PeerMissingError(PeerError):
    def __init__(self, environment: str, *, reason: str) -> None:
        super().__init__(
            f"{environment} can't be installed and is left out: {get_last_line(reason)}"
        )


class PeerFailedError(PeerError):
    def __init__(self, peer: str, workload: str, *, problem: str, log: str = "") -> None:
        said = get_last_line(log)
        super().__init__(f"{peer}, {workload}: {problem}" + (f": {said}" if said else ""))


class UnknownPeerError(PeerError):
    def __init__(self, kind: str, name: str, *, known: tuple[str, ...]) -> None:
        super().__init__(f"no {kind} is called {name!r}: choose one of {', '.join(known)}")


def get_last_line(text: str) -> str:
    """That is where pip and a traceback say what it was; cut, so that it stays a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LINE_CHARS_MAX] if lines else ""
