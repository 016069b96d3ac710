"""What is outside of Runnel refused, broke off or failed: services and programs."""

from runnel.errors.root import RunnelError


class NotAllowedError(RunnelError):
    """The operator of this worker has not allowed what a workflow asks for."""

    code = "not_allowed"

    def __init__(self, what: str, name: str, *, setting: str, example: str | None = None) -> None:
        super().__init__(
            f"this worker may not use {what} '{name}': who runs the worker has to allow it, with "
            f"{setting}={example or name} for example"
        )
        self.name = name
        self.setting = setting


class ProgramNotFoundError(RunnelError):
    """Nothing of that name can be run here; trying again will not find it either."""

    code = "no_program"

    def __init__(self, program: str) -> None:
        super().__init__(
            f"there is no program '{program}' on this worker; give its whole path, or put it where "
            "the PATH of the worker leads"
        )
        self.program = program


class ProgramFailedError(RunnelError):
    """A program ended with an exit code that is no success; `stderr` is how its output ends."""

    retryable = True
    code = "program_failed"
    says_all = True

    def __init__(self, program: str, ending: str, *, stderr: str = "") -> None:
        said = f"; it wrote: {stderr}" if stderr else ""
        super().__init__(f"'{program}' ended with {ending}{said}")
        self.program = program
        self.ending = ending


class ProgramRefusedError(ProgramFailedError):
    """As ProgramFailedError, with an exit code that says that trying again is no use."""

    retryable = False


class ServiceError(RunnelError):
    """A service can't be reached, breaks off, or answers what nobody can use: tried again."""

    retryable = True
    code = "service"
    says_all = True


class ServiceBusyError(ServiceError):
    """A service answered that it can't now; `retry_after_s` is when it said it could, or None."""

    code = "service_busy"

    def __init__(self, answer: str, *, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(answer)
        self.status = status
        self.retry_after_s = retry_after_s


class ServiceRefusedError(ServiceError):
    """A service answered that it will not; `status` is None when it was not even asked."""

    retryable = False
    code = "service_refused"

    def __init__(self, answer: str, *, status: int | None = None) -> None:
        super().__init__(answer)
        self.status = status
