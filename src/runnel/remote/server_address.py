"""Where a server is, and what opens its door."""

from urllib.parse import urlsplit

import msgspec

from runnel.errors import InputError
from runnel.settings import VARIABLES, read_settings

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
DEFAULT = "http://127.0.0.1:8080"
SERVER, TOKEN = "RUNNEL_SERVER", "RUNNEL_TOKEN"


class ServerAddress(msgspec.Struct, frozen=True):
    url: str
    token: str | None = None

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.url).hostname in LOOPBACK

    @property
    def is_encrypted(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def shown(self) -> str:
        return VARIABLES[SERVER].hide(self.url)


def server_address(url: str | None = None, token: str | None = None) -> ServerAddress:
    """What is not given is taken from the environment; raises InputError."""
    given = {SERVER: url, TOKEN: token}
    for name, text in given.items():
        if text is not None:
            variable = VARIABLES[name]
            try:
                variable.parse(text)
            except ValueError as error:
                what = "url" if name == SERVER else "token"
                raise InputError(f"{what}: expected {error}, got '{variable.hide(text)}'") from None
    settings = read_settings() if url is None or token is None else None
    if settings is not None:
        url = url or settings.server_url or DEFAULT
        token = token or settings.server_token
    return ServerAddress((url or DEFAULT).rstrip("/"), token or None)
