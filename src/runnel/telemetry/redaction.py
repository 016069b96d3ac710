"""Masks secrets in log lines."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

TextMask: TypeAlias = Callable[[str], str]

HIDDEN = "***"
# Shorter ones would be found in innocent words, and guessed anyway.
SECRET_CHARS_MIN = 4
_SECRET_NAMES = re.compile(
    r"passw(or)?d|passphrase|secret|authorization|credential|private_?key|api_?key"
    r"|(access|auth|api|bearer|refresh)_?token",
    re.IGNORECASE,
)
# Bounded: in a text of many URLs and nothing else, each would be searched to the end of all.
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s@'\"]{1,1000}@")


@lru_cache(maxsize=1_000)
def _is_secret_name(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None


class Redactor:
    """Hides known secrets wherever they appear, what a URL names before its host, and each value
    whose name says that it is a secret.
    """

    def __init__(self, secrets: Iterable[str] = (), *, hide: TextMask | None = None) -> None:
        """`hide` takes further secrets out of a text."""
        # The longest first: one may be part of another.
        known = sorted({secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN}, key=len)
        self._known_pattern = (
            re.compile("|".join(map(re.escape, reversed(known)))) if known else None
        )
        self._hide = hide

    def redact_known(self, text: str) -> str:
        """Without the secrets that were given."""
        if self._hide is not None:
            text = self._hide(text)
        return text if self._known_pattern is None else self._known_pattern.sub(HIDDEN, text)

    def redact_text(self, text: str) -> str:
        text = self.redact_known(text)
        return _URL_CREDENTIALS.sub(f"{HIDDEN}@", text) if "://" in text else text

    def redact_value(self, name: str, value: object) -> object:
        """Numbers and truths as they are, unless one is a secret; everything else as text or as
        what holds texts.
        """
        if _is_secret_name(name):
            return HIDDEN
        if value is None or isinstance(value, bool | int | float):
            return HIDDEN if self.redact_known(str(value)) == HIDDEN else value
        if isinstance(value, dict):
            return {
                self.redact_text(str(key)): self.redact_value(str(key), item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            return [self.redact_value("", item) for item in value]
        return self.redact_text(str(value))
