"""Builds an HTTP request from a config, and classifies the status of the response.

Imports no HTTP package, so that a mocked handler starts quickly.
"""

import base64
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

import msgspec

from runnel.core.message_text import shorten
from runnel.core.values import Json
from runnel.errors import RunnelError, ServiceBusyError, ServiceRefusedError

OK_STATUSES: tuple[int | str, ...] = ("2xx",)
# Temporary problems: Request Timeout, Too Early, Too Many Requests, and errors of the server.
RETRIED_STATUSES: tuple[int | str, ...] = (408, 425, 429, "5xx")
ERROR_BODY_CHARS_MAX = 500


class StatusPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which statuses are ok and which are retried: numbers, or classes such as `5xx`.

    A status that is in both lists is ok.
    """

    ok: Sequence[int | str] = OK_STATUSES
    retried: Sequence[int | str] = RETRIED_STATUSES

    def is_ok(self, status: int) -> bool:
        return _includes_status(self.ok, status)

    def is_retried(self, status: int) -> bool:
        return _includes_status(self.retried, status) and not self.is_ok(status)


def build_status_error(
    policy: StatusPolicy, where: str, status: int, *, body: str, retry_after_s: float | None
) -> RunnelError:
    """Builds the error for a status that is not ok; quotes `body`, the beginning of the body."""
    excerpt = shorten(" ".join(body.split()), ERROR_BODY_CHARS_MAX)
    sentence = f"{where} answered {status}" + (f": {excerpt}" if excerpt else "")
    if policy.is_retried(status):
        return ServiceBusyError(sentence, status=status, retry_after_s=retry_after_s)
    return ServiceRefusedError(sentence, status=status)


def parse_retry_after(text: str | None, *, now: float) -> float | None:
    """Returns the header Retry-After in seconds from now; None if it is missing or invalid."""
    if text is None:
        return None
    if text.isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _includes_status(statuses: Sequence[int | str], status: int) -> bool:
    return status in statuses or f"{status // 100}xx" in statuses


TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
REDIRECTS_MAX = 5
RESPONSE_BYTES_MAX = 10 * 1024 * 1024
SHOWN_URL_CHARS_MAX = 120
# Methods without side effects, which need no idempotency key.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
USER_AGENT = "runnel"


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one request: total and connect time in seconds, redirects, response size."""

    total_s: float = TIMEOUT_S
    connect_s: float = CONNECT_TIMEOUT_S
    redirects: int = REDIRECTS_MAX
    bytes_max: int = RESPONSE_BYTES_MAX


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request. Names in `headers` are lower-case; `content` is the body."""

    method: str
    url: str
    headers: dict[str, str]
    params: Mapping[str, Json] = {}
    content: bytes | None = None
    limits: HttpLimits = HttpLimits()
    status_policy: StatusPolicy = StatusPolicy()
    response_kind: str = "auto"


def parse_limits(config: Mapping[str, Json], *, total_s: float = TIMEOUT_S) -> HttpLimits:
    return HttpLimits(
        total_s=config.get("timeout_seconds", total_s),
        connect_s=config.get("connect_timeout_seconds", CONNECT_TIMEOUT_S),
        redirects=config.get("max_redirects", REDIRECTS_MAX),
        bytes_max=config.get("max_response_bytes", RESPONSE_BYTES_MAX),
    )


def parse_status_policy(config: Mapping[str, Json]) -> StatusPolicy:
    return StatusPolicy(
        ok=config.get("ok_statuses", OK_STATUSES),
        retried=config.get("retry_statuses", RETRIED_STATUSES),
    )


def parse_headers(config: Mapping[str, Json]) -> dict[str, str]:
    """Returns the headers of the config, by lower-case name."""
    return {name.lower(): str(value) for name, value in config.get("headers", {}).items()}


def build_http_request(config: Mapping[str, Json], *, idempotency_key: str) -> HttpRequest:
    """Builds the HTTP request from a checked config."""
    method = config.get("method", "GET")
    headers = (
        {} if method in SAFE_METHODS else {"idempotency-key": encode_header_value(idempotency_key)}
    )
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
    return HttpRequest(
        method=method,
        url=config["url"],
        headers={**headers, **parse_headers(config)},
        params=config.get("params", {}),
        content=content,
        limits=parse_limits(config),
        status_policy=parse_status_policy(config),
        response_kind=config.get("response", "auto"),
    )


def format_url(url: str) -> str:
    """Formats a URL for a message.

    Leaves out query, fragment, user and password, because they may contain secrets.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return shorten(f"{parts.scheme}://{host}{parts.path}", SHOWN_URL_CHARS_MAX)


def encode_header_value(text: str) -> str:
    """Percent-encodes text that is not ASCII, such as an idempotency key with a node id."""
    return text if text.isascii() and text.isprintable() else quote(text)
