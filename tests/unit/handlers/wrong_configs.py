"""Wrong configs of the I/O handlers, each with the expected error."""

from typing import Any

URL = "expected a URL as https://host/path, without a user or password in it"
HEADERS = "expected an object of header to text, in ASCII and on one line each"
MOCK = (
    "expected true, false, or an object of delay (seconds, or [least, most]), response and status"
)
AT = "https://example.org/"

HTTP: list[tuple[dict[str, Any], str]] = [
    ({}, f"config.url: {URL}; without one, set mock: true, or RUNNEL_MOCK_SERVICES=true"),
    ({"url": "example.org"}, f"config.url: {URL}, got 'example.org'"),
    ({"url": "file:///etc/passwd"}, f"config.url: {URL}, got 'file:///etc/passwd'"),
    ({"url": "http://a:b@example.org"}, f"config.url: {URL}, got 'http://a:b@example.org'"),
    ({"url": "http://[::1"}, f"config.url: {URL}, got 'http://[::1'"),
    ({"url": "http://a b/"}, f"config.url: {URL}, got 'http://a b/'"),
    ({"url": 7}, f"config.url: {URL}, got 7"),
    (
        {"url": AT, "methd": "GET"},
        (
            "config.methd: the handler 'call_external_service' has no such setting (did you mean "
            "'method'?)"
        ),
    ),
    (
        {"url": AT, "method": "get"},
        "config.method: expected one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, got 'get'",
    ),
    ({"url": AT, "headers": {"X": "a\r\nY: b"}}, f"config.headers: {HEADERS}, got an object"),
    ({"url": AT, "headers": {"X Y": "a"}}, f"config.headers: {HEADERS}, got an object"),
    (
        {"url": AT, "headers": {"Content-Length": "3"}},
        "config.headers: Runnel sets 'Content-Length' itself; leave it out",
    ),
    (
        {"url": AT, "headers": {"transfer-encoding": "chunked"}},
        "config.headers: Runnel sets 'transfer-encoding' itself; leave it out",
    ),
    ({"url": AT, "headers": ["X"]}, f"config.headers: {HEADERS}, got a list"),
    (
        {"url": AT, "params": {"a": {"b": 1}}},
        (
            "config.params: expected an object of name to text, number, true or false, or a list "
            "of them, got an object"
        ),
    ),
    (
        {"url": AT, "method": "POST", "json": 1, "body": "1"},
        "config.body: expected either json or body, got both",
    ),
    (
        {"url": AT, "json": {}},
        "config.method: a request with json or body needs a method such as POST",
    ),
    ({"url": AT, "method": "PUT", "body": {}}, "config.body: expected a text, got an object"),
    ({"url": AT, "timeout_seconds": 0}, "config.timeout_seconds: expected a number above 0, got 0"),
    (
        {"url": AT, "ok_statuses": [200, "six"]},
        "config.ok_statuses: expected a list of statuses such as [404, '5xx'], got a list",
    ),
    (
        {"url": AT, "retry_statuses": 503},
        "config.retry_statuses: expected a list of statuses such as [404, '5xx'], got 503",
    ),
    (
        {"url": AT, "max_redirects": 100},
        "config.max_redirects: expected a whole number from 0 to 20, got 100",
    ),
    (
        {"url": AT, "max_response_bytes": 10**12},
        (
            "config.max_response_bytes: expected a whole number from 1 to 67,108,864, got "
            "1000000000000"
        ),
    ),
    (
        {"url": AT, "response": "xml"},
        "config.response: expected one of auto, json, text, got 'xml'",
    ),
    (
        {"url": AT, "auth": {"user": "a"}},
        "config.auth: expected an object of username and password, got an object",
    ),
    (
        {
            "url": AT,
            "auth": {"username": "a", "password": "b"},
            "headers": {"authorization": "Bearer x"},
        },
        "config.auth: expected either auth or a header Authorization, got both",
    ),
    ({"mock": "yes"}, f"config.mock: {MOCK}, got 'yes'"),
    ({"mock": {"delay": [2, 1]}}, f"config.mock: {MOCK}, got an object"),
    ({"mock": {"delay": -1}}, f"config.mock: {MOCK}, got an object"),
    ({"mock": {"status": []}}, f"config.mock: {MOCK}, got an object"),
    ({"mock": {"answer": 1}}, f"config.mock: {MOCK}, got an object"),
]
LLM: list[tuple[dict[str, Any], str]] = [
    ({"model": "m"}, "config.prompt: expected either prompt or messages, got neither"),
    (
        {"model": "m", "prompt": "x", "messages": [{"role": "user"}]},
        "config.prompt: expected either prompt or messages, got both",
    ),
    (
        {"prompt": "x"},
        (
            "config.model: expected a text that is not empty; without one, set mock: true, or "
            "RUNNEL_MOCK_SERVICES=true"
        ),
    ),
    (
        {"model": "m", "messages": [{"content": "x"}]},
        "config.messages: expected a list of objects with role and content, got a list",
    ),
    (
        {"model": "m", "messages": [{"role": "user"}], "system": "x"},
        (
            "config.system: expected only together with prompt; with messages, add a message of "
            "role 'system'"
        ),
    ),
    (
        {"model": "m", "prompt": "x", "temperature": 3},
        "config.temperature: expected a number from 0 to 2, got 3",
    ),
    (
        {"model": "m", "prompt": "x", "max_tokens": 0},
        "config.max_tokens: expected a whole number ≥ 1, got 0",
    ),
    (
        {"model": "m", "prompt": "x", "stream": "yes"},
        "config.stream: expected true or false, got 'yes'",
    ),
    (
        {"model": "m", "prompt": "x", "extra": {"model": "other"}},
        "config.extra: 'model' has a setting of its own; use that",
    ),
    (
        {"model": "m", "prompt": "x", "base_url": "ftp://x"},
        f"config.base_url: {URL}, got 'ftp://x'",
    ),
]
SHELL: list[tuple[dict[str, Any], str]] = [
    (
        {},
        (
            "config.command: the handler 'shell' needs this setting; expected a program and "
            "its arguments as a list of texts"
        ),
    ),
    (
        {"command": "ls -l"},
        (
            "config.command: expected a list such as [git, log], got a text; a text needs "
            "shell: true"
        ),
    ),
    (
        {"command": ["ls"], "shell": True},
        "config.command: expected a text with shell: true, got a list; a list needs no shell",
    ),
    (
        {"command": []},
        "config.command: expected a program and its arguments as a list of texts, got a list",
    ),
    (
        {"command": ["a\0b"]},
        "config.command: expected a program and its arguments as a list of texts, got a list",
    ),
    (
        {"command": ["ls"], "env": {"A B": "x"}},
        "config.env: expected an object of variable to text, got an object",
    ),
    (
        {"command": ["ls"], "ok_exit_codes": [256]},
        "config.ok_exit_codes: expected a list of exit codes from 0 to 255, got a list",
    ),
    (
        {"command": ["ls"], "parse": "xml"},
        "config.parse: expected one of text, json, lines, got 'xml'",
    ),
]
WRONG = [
    *(("call_external_service", *case) for case in HTTP),
    *(("llm_service", *case) for case in LLM),
    *(("shell", *case) for case in SHELL),
]
