"""A request over HTTP that goes no further than the door, and why."""

from collections.abc import Sequence

from runnel.errors.input import InputError
from runnel.errors.root import RunnelError


class MalformedBodyError(InputError):
    """The body of a request is not what it says it is."""

    code = "malformed_body"


class UnsupportedMediaError(InputError):
    """The body of a request is of a kind that this call does not take."""

    code = "unsupported_media"

    def __init__(self, found: str, expected: Sequence[str]) -> None:
        got = f"'{found}'" if found else "nothing"
        super().__init__(f"Content-Type: expected {' or '.join(expected)}, got {got}")
        self.found = found
        self.expected = tuple(expected)


class BodyTooLargeError(InputError):
    """More was sent than one request may hold."""

    code = "body_too_large"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"the body has more than {most:,} bytes, which is the most that one request may hold"
        )
        self.most = most


class ForeignRequestError(InputError):
    """A request that names another host, or that a page of another site has made."""

    code = "foreign_request"

    def __init__(self, header: str, found: str, remedy: str) -> None:
        super().__init__(f"{header}: '{found}' is not served here; {remedy}")
        self.header = header
        self.found = found


class NotAuthenticatedError(InputError):
    """No token was given, or one that is unknown, revoked or too old."""

    code = "not_authenticated"


class MissingScopeError(InputError):
    """The token is good, and does not allow this."""

    code = "missing_scope"

    def __init__(self, needed: str, held: Sequence[str]) -> None:
        super().__init__(
            f"this needs a token with the scope '{needed}', the given one has: {', '.join(held)}"
        )
        self.needed = needed
        self.held = tuple(held)


class NotRunnelError(InputError):
    """Whoever answers at the address of a server is something else."""

    code = "not_runnel"

    def __init__(self, address: str, found: str) -> None:
        super().__init__(
            f"what answers at {address} is no Runnel server: it says {found}; check the address"
        )
        self.address = address
        self.found = found


class TooManyRequestsError(InputError):
    """More requests than this caller may make in a minute."""

    retryable = True
    code = "too_many_requests"

    def __init__(self, most: int, retry_after_s: float) -> None:
        super().__init__(
            f"more than {most} requests in a minute; try again in {retry_after_s:.0f} s"
        )
        self.most = most
        self.retry_after_s = retry_after_s


class OverloadedError(RunnelError):
    """More work waits than it is sensible to take on."""

    retryable = True
    code = "overloaded"

    def __init__(self, queue: str, depth: int, most: int) -> None:
        super().__init__(
            f"{depth:,} tasks wait in the queue '{queue}', and beyond {most:,} nothing new is "
            "taken on; start more workers, or try again later"
        )
        self.queue = queue
        self.depth = depth
        self.most = most


class TooManyStreamsError(RunnelError):
    """As many clients are told of what happens as one process can serve."""

    retryable = True
    code = "too_many_streams"

    def __init__(self, most: int) -> None:
        super().__init__(f"this process has {most:,} streams of events already; try again later")
        self.most = most
