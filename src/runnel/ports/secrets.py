"""Secrets by name: known to whoever runs workers, filled in there, never stored."""

from typing import Protocol


class Secrets(Protocol):
    def get(self, name: str) -> str | None:
        """None when this process has no secret of that name."""

    def hide(self, text: str) -> str:
        """The text without the value of any secret, also where it is quoted or encoded."""


class NoSecrets:
    def get(self, name: str) -> str | None:
        return None

    def hide(self, text: str) -> str:
        return text
