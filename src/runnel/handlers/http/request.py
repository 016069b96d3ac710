"""A request as a config describes it, before any package for it is imported."""

import base64
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

import msgspec

from runnel.core.values import Json
from runnel.errors import RunnelError, ServiceBusyError, ServiceRefusedError
from runnel.handlers.permissions import short

# What the status of an answer means: a result, worth another try, or final.

OK: tuple[int | str, ...] = ("2xx",)
# Request Timeout, Too Early, Too Many Requests, and trouble of the server's own: all may pass.
RETRIED: tuple[int | str, ...] = (408, 425, 429, "5xx")
SAID_CHARS = 500


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Statuses as numbers or as classes, `5xx`; `ok` wins over `retried`."""

    ok: Sequence[int | str] = OK
    retried: Sequence[int | str] = RETRIED

    def is_ok(self, status: int) -> bool:
        return _has(self.ok, status)

    def is_retried(self, status: int) -> bool:
        return _has(self.retried, status) and not self.is_ok(status)


def status_error(
    verdicts: Verdicts, where: str, status: int, *, said: str, retry_after_s: float | None
) -> RunnelError:
    """`said` is the beginning of the body: services explain there what they did not like."""
    words = short(" ".join(said.split()), SAID_CHARS)
    sentence = f"{where} answered {status}" + (f": {words}" if words else "")
    if verdicts.is_retried(status):
        return ServiceBusyError(sentence, status=status, retry_after_s=retry_after_s)
    return ServiceRefusedError(sentence, status=status)


def retry_after(text: str | None, *, now: float) -> float | None:
    """The header Retry-After in seconds from now; None without one, or when it is no time."""
    if text is None:
        return None
    if text.isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _has(statuses: Sequence[int | str], status: int) -> bool:
    return status in statuses or f"{status // 100}xx" in statuses


TIMEOUT_S = 30.0
CONNECT_S = 10.0
REDIRECTS = 5
RESPONSE_BYTES = 10 * 1024 * 1024
SHOWN_CHARS = 120
# Methods that change nothing: repeating one needs no key.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
USER_AGENT = "runnel"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    total_s: float = TIMEOUT_S
    connect_s: float = CONNECT_S
    redirects: int = REDIRECTS
    bytes_max: int = RESPONSE_BYTES


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """`headers` are the user's, by lower-case name; `content` is the body."""

    method: str
    url: str
    headers: dict[str, str]
    params: Mapping[str, Json] = {}
    content: bytes | None = None
    limits: Limits = Limits()
    verdicts: Verdicts = Verdicts()
    kind: str = "auto"


def limits_of(config: Mapping[str, Json], *, total_s: float = TIMEOUT_S) -> Limits:
    return Limits(
        total_s=config.get("timeout_seconds", total_s),
        connect_s=config.get("connect_timeout_seconds", CONNECT_S),
        redirects=config.get("max_redirects", REDIRECTS),
        bytes_max=config.get("max_response_bytes", RESPONSE_BYTES),
    )


def wanted_of(config: Mapping[str, Json], *, idempotency_key: str) -> Wanted:
    """Of a config that was checked."""
    method = config.get("method", "GET")
    given = {name.lower(): str(value) for name, value in config.get("headers", {}).items()}
    headers = {} if method in SAFE_METHODS else {"idempotency-key": in_header(idempotency_key)}
    content = None
    if "json" in config:
        content = msgspec.json.encode(config["json"])
        headers["content-type"] = "application/json"
    elif "body" in config:
        content = config["body"].encode()
        headers["content-type"] = "text/plain; charset=utf-8"
    if "auth" in config:
        pair = f"{config['auth']['username']}:{config['auth']['password']}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Wanted(
        method=method,
        url=config["url"],
        headers={**headers, **given},
        params=config.get("params", {}),
        content=content,
        limits=limits_of(config),
        verdicts=Verdicts(
            ok=config.get("ok_statuses", OK), retried=config.get("retry_statuses", RETRIED)
        ),
        kind=config.get("response", "auto"),
    )


def shown_url(url: str) -> str:
    """In a message: without its query and fragment, which hold what is none of a log's business,
    and without a password, as the operator's own URL may have one.
    """
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return short(f"{parts.scheme}://{place}{parts.path}", SHOWN_CHARS)


def in_header(text: str) -> str:
    """Ids of nodes may be written in any language, headers only in ASCII."""
    return text if text.isascii() and text.isprintable() else quote(text)
