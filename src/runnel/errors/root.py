"""What every error of Runnel is."""

from typing import ClassVar


class RunnelError(Exception):
    """The base of all errors raised by Runnel."""

    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "internal"
    says_all: ClassVar[bool] = False
    """Whether a traceback would add nothing to the message, for whoever reads the error."""
