"""The user gave something that can't be used: what, and what to do instead."""

from collections.abc import Sequence

from runnel.errors.root import RunnelError


class InputError(RunnelError):
    """The user gave something that can't be used; the message is for the user, exit code 2."""

    code = "bad_input"


class InvalidWorkflowError(InputError):
    """A workflow document with at least one problem; all problems are listed."""

    code = "invalid_workflow"

    def __init__(self, problems: Sequence[str], *, source: str = "workflow") -> None:
        count = len(problems)
        head = f"{source}: 1 problem" if count == 1 else f"{source}: {count} problems"
        super().__init__(head + "".join(f"\n  - {problem}" for problem in problems))
        self.problems = tuple(problems)
        self.source = source


class TraceError(InvalidWorkflowError):
    """A decorated workflow that can't be traced: `file`, `line`, `statement` say where."""

    code = "untraceable"

    def __init__(self, problem: str, *, file: str, line: int, statement: str = "") -> None:
        self.file = file
        self.line = line
        self.statement = statement
        where = f"{file}, line {line}" if line else file
        super().__init__([f"`{statement}` {problem}" if statement else problem], source=where)

    def __str__(self) -> str:
        return f"{self.source}: {self.problems[0]}"


class InvalidTriggerError(InputError):
    """A schedule or a webhook with at least one problem; each begins with the name of its field."""

    code = "invalid_trigger"

    def __init__(self, problems: Sequence[str], *, source: str) -> None:
        if len(problems) == 1:
            message = f"{source}: {problems[0]}"
        else:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            message = f"{source}: {len(problems)} problems{lines}"
        super().__init__(message)
        self.problems = tuple(problems)
        self.source = source


class InvalidInputError(InputError):
    """The execution's input does not fit the workflow's input schema."""

    code = "invalid_input"


class NotFoundError(InputError):
    """Something that was named does not exist."""

    code = "not_found"

    def __init__(self, kind: str, name: str, *, hint: str = "") -> None:
        super().__init__(f"no {kind} '{name}'" + (f"; {hint}" if hint else ""))
        self.kind = kind
        self.name = name


class WrongStateError(InputError):
    """The execution is in a state in which this can't be done."""

    code = "wrong_state"


class WebhookRefusedError(InputError):
    """A call of a webhook by somebody who does not prove to know its secret."""

    code = "webhook_refused"


class ConflictError(InputError):
    """Somebody else has changed it since it was read; `found` is 0 when it is gone."""

    code = "conflict"

    def __init__(self, kind: str, key: str, *, expected: int, found: int) -> None:
        if found == 0:
            message = f"{kind} '{key}' is gone: somebody has removed it meanwhile"
        elif expected == 0:
            message = (
                f"there is a {kind} '{key}' already: remove that one first, or take another name"
            )
        else:
            message = f"{kind} '{key}' was changed meanwhile: read it again, then change it"
        super().__init__(message)
        self.kind = kind
        self.key = key
        self.expected = expected
        self.found = found


class KeyReusedError(InputError):
    """An idempotency key that names an execution of something else."""

    code = "key_reused"

    def __init__(self, key: str, execution_id: str, difference: str) -> None:
        super().__init__(
            f"the idempotency key {key} belongs to execution {execution_id}, which was submitted "
            f"with {difference}; give another key, or the same again"
        )
        self.key = key
        self.execution_id = execution_id
        self.difference = difference


class PayloadError(InputError):
    """A value is too large, or is not JSON."""

    code = "bad_payload"


class MissingExtraError(InputError):
    """A part of Runnel whose packages are not installed."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str, *, missing: str) -> None:
        super().__init__(
            f"{what} needs the package '{missing}', which is not installed: "
            f"`pip install 'runnel[{extra}]'`"
        )
        self.extra = extra
        self.missing = missing
