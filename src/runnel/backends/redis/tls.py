"""Talking to a server over TLS, as the options of its URL say."""

import ssl
from collections.abc import Mapping
from functools import lru_cache

import msgspec

_PREFIX = "ssl_"
_CHECKS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FALSE = frozenset({"", "0", "f", "false", "n", "no"})


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """Each is an option of the URL, with `ssl_` before its name; the server is checked, unless
    `cert_reqs` says `none`.
    """

    cert_reqs: str = "required"
    check_hostname: str = "true"
    ca_certs: str | None = None
    ca_path: str | None = None
    ca_data: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = None
    min_version: str | None = None
    ciphers: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.cert_reqs not in _CHECKS:
            raise ValueError(f"{_PREFIX}cert_reqs is {' or '.join(_CHECKS)}")
        if self.min_version is not None:
            ssl.TLSVersion(int(self.min_version))


TLS_OPTIONS = frozenset(_PREFIX + name for name in Tls.__struct_fields__)


def tls_of(options: Mapping[str, str]) -> Tls:
    """Of all options of a URL; raises ValueError for a value that an option can't have."""
    named = {name.removeprefix(_PREFIX): options[name] for name in TLS_OPTIONS & options.keys()}
    return Tls(**named)


@lru_cache(maxsize=8)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """Made once: it reads files. Raises OSError, or ValueError, for what they can't be used for."""
    context = ssl.create_default_context()
    verify = _CHECKS[tls.cert_reqs]
    is_checked = verify is not ssl.CERT_NONE and tls.check_hostname.lower() not in _FALSE
    context.check_hostname = is_checked
    context.verify_mode = verify
    if tls.certfile or tls.keyfile:
        context.load_cert_chain(tls.certfile or "", tls.keyfile, tls.password)
    if tls.ca_certs or tls.ca_path or tls.ca_data:
        context.load_verify_locations(tls.ca_certs, tls.ca_path, tls.ca_data)
    if tls.min_version is not None:
        context.minimum_version = ssl.TLSVersion(int(tls.min_version))
    if tls.ciphers is not None:
        context.set_ciphers(tls.ciphers)
    return context
