"""Which hosts and pages a request may come from, so that no web page can use a local server.

A page that somebody looks at can send requests to this machine, and can make its own name point
here. What it can't do is to change the Host and Origin that the browser writes.
"""

import re
from collections.abc import Collection, Mapping

from runnel.errors import ForeignRequestError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ALL = "*"


def check_host(headers: Mapping[str, str], known: Collection[str]) -> None:
    """Raises ForeignRequestError unless the Host is one of those, whatever the port."""
    found = headers.get("host", "")
    if ALL not in known and _name(found) not in {each.lower() for each in known}:
        raise ForeignRequestError("Host", found, "RUNNEL_API_HOSTS lists the names of this server")


def check_origin(headers: Mapping[str, str], known: Collection[str]) -> None:
    """Raises ForeignRequestError for a page that this server has not sent, and does not allow."""
    found = headers.get("origin")
    host = headers.get("host", "")
    if found is None:
        if headers.get("sec-fetch-site") == "cross-site":
            raise ForeignRequestError("Sec-Fetch-Site", "cross-site", _REMEDY)
        return
    if found in known or ALL in known:
        return
    if found not in {f"http://{host}", f"https://{host}"}:
        raise ForeignRequestError("Origin", found, _REMEDY)


_REMEDY = "RUNNEL_API_ORIGINS lists the pages that may use this server"


_HOST = re.compile(r"(?:\[(?P<address>[^\]]*)\]|(?P<name>[^:]*))(?::[0-9]*)?", re.ASCII)


def _name(host: str) -> str:
    """In lower case, without the port, as of `[::1]:8080`; what is no host is no name of any."""
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found["address"] or found["name"] or ""
