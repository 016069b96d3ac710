"""`call_external_service` over TLS sends nothing to a server with an invalid certificate."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.certificates import make_certificate
from tests.integration.service_calls import call_service, fail_call, is_retried, make_worker
from tests.scripted_http_server import LOOPBACK, ScriptedServer, make_answer

HEADERS = {"Authorization": "Bearer geheim"}


@asynccontextmanager
async def tls_server(path: Path) -> AsyncIterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    scripted = ScriptedServer()
    server = await asyncio.start_server(scripted.serve, LOOPBACK, 0, ssl=context)
    scripted.port = server.sockets[0].getsockname()[1]
    scripted.says("/a", make_answer(body=b"hello"))
    try:
        yield scripted
    finally:
        server.close()


def url_of(server: ScriptedServer) -> str:
    return server.url("/a", host="localhost").replace("http:", "https:")


async def test_a_certificate_of_an_authority_from_the_operator_is_trusted(
    openssl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_certificate(openssl, tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))

    async with tls_server(path) as server:
        output = await call_service(make_worker("localhost"), url=url_of(server), headers=HEADERS)

    assert output["body"] == "hello"


WRONG = {
    "self-signed certificate": ("localhost", 2),
    "Hostname mismatch": ("other.example", 2),
    "expired": ("localhost", -1),
}


@pytest.mark.parametrize("why", WRONG)
async def test_an_invalid_certificate_is_refused_before_anything_is_sent(
    openssl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    host, days = WRONG[why]
    path = make_certificate(openssl, tmp_path, host=host, days=days)
    if why != "self-signed certificate":
        monkeypatch.setenv("SSL_CERT_FILE", str(path))

    async with tls_server(path) as server:
        failed = await fail_call(make_worker("localhost"), url=url_of(server), headers=HEADERS)

    assert "is not trusted: " in failed.error.message
    assert why in failed.error.message
    assert not is_retried(failed)
    assert server.requests == []
