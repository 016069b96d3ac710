"""What a task has logged, as far as it is kept with its execution."""

import msgspec

# Of one attempt, the last ones: ten kilobytes at most, and nothing for code that does not log.
LOG_LINES_MAX = 20
LOG_LINE_CHARS_MAX = 500


class LogLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: float
    level: str
    text: str
