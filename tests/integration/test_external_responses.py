"""Answers to `call_external_service` that are broken, compressed, too large or followed by more."""

import gzip
import zlib
from collections.abc import AsyncIterator

import pytest

from runnel.core.commands import TaskCompleted
from tests.integration.service_calls import (
    HANDLER,
    call_service,
    fail_call,
    is_retried,
    make_worker,
)
from tests.scripted_http_server import (
    ScriptedAnswer,
    ScriptedServer,
    make_answer,
    make_json_answer,
    open_scripted_server,
)
from tests.unit.engine.worker.worker_harness import WorkerHarness


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with open_scripted_server() as server:
        yield server


@pytest.fixture
def stage() -> WorkerHarness:
    return make_worker("127.0.0.1", "localhost")


BROKEN = {
    "closed without an answer": ScriptedAnswer(is_last=True),
    "garbage": ScriptedAnswer(b"\x16\x03\x01 this is no HTTP\r\n\r\n", is_last=True),
    "cut in its head": ScriptedAnswer(b"HTTP/1.1 200 OK\r\nContent-Le", is_last=True),
    "cut in its body": ScriptedAnswer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", is_last=True
    ),
    "an invalid chunk": ScriptedAnswer(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", is_last=True
    ),
    "two lengths": ScriptedAnswer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 2\r\n\r\nhalf", is_last=True
    ),
    "invalid gzip": make_answer(body=b"not packed", content_encoding="gzip"),
    "only the head of a gzip": make_answer(body=gzip.compress(b"x")[:10], content_encoding="gzip"),
    "a second gzip that is cut": make_answer(
        body=gzip.compress(b"x") + gzip.compress(b"y" * 99)[:-9], content_encoding="gzip"
    ),
    "half a gzip": make_answer(body=gzip.compress(b"x" * 999)[:-9], content_encoding="gzip"),
    "no JSON": make_json_answer(b'{"half": '),
    "deep JSON": make_json_answer(b"[" * 100_000),
    "endless head": ScriptedAnswer(
        b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 300_000, is_last=True
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_answer_is_retried(
    stage: WorkerHarness, server: ScriptedServer, name: str
) -> None:
    url = server.says("/a", BROKEN[name])

    failed = await fail_call(stage, url=url)

    assert (failed.error.type, is_retried(failed)) == ("ServiceError", True)
    assert url in failed.error.message


async def test_a_content_length_that_is_too_small_truncates_the_answer(
    stage: WorkerHarness, server: ScriptedServer
) -> None:
    answer = ScriptedAnswer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 evil\r\n\r\n"
    )

    output = await call_service(stage, url=server.says("/a", answer))

    assert output["body"] == "ok"


EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"


@pytest.mark.parametrize(
    ("method", "first"),
    [
        ("GET", make_answer(body=b"ok").data),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 48\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
    ],
)
async def test_bytes_after_an_answer_do_not_answer_the_next_request(
    stage: WorkerHarness, server: ScriptedServer, method: str, first: bytes
) -> None:
    malicious, honest = (
        server.says("/odd", ScriptedAnswer(first + EVIL)),
        server.says("/b", make_answer(body=b"b")),
    )

    async with stage.working():
        await stage.issue(stage.task(HANDLER, {"url": malicious, "method": method}, node="a"))
        await stage.results(1)
        await stage.issue(stage.task(HANDLER, {"url": honest}, node="b"))
        [_, second] = await stage.results(2)

    assert isinstance(second, TaskCompleted)
    assert second.output.decode()["body"] == "b"
    assert [request.connection for request in server.requests] == [1, 2]


REFUSED = {
    "unknown packing": (
        make_answer(body=b"x", content_encoding="br"),
        "with the content encoding 'br'",
    ),
    "a picture": (
        make_answer(body=b"\x89PNG\xff", content_type="image/png"),
        "5 bytes of image/png",
    ),
    "no charset": (
        make_answer(body=b"x", content_type="text/plain; charset=undefined"),
        "as undefined",
    ),
    "odd charset": (
        make_answer(body=b"x", content_type="text/plain; charset=nope"),
        "decoded as nope",
    ),
    "said to be large": (
        ScriptedAnswer(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"),
        "larger",
    ),
    "large": (
        ScriptedAnswer(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"800\r\n" + b"x" * 0x800
        ),
        "is larger than 1,000 bytes; request less data, or raise max_response_bytes",
    ),
    "endless parts with nothing in them": (
        make_answer(body=gzip.compress(b"") * 200, content_encoding="gzip"),
        "is larger than 1,000 bytes",
    ),
    "an encoding that takes for ever": (
        make_answer(body=b"a-" + b"b9a" * 300, content_type="text/plain; charset=PunyCode"),
        "can't be decoded as punycode",
    ),
    "an encoding of sources": (
        make_answer(body=b"\\x41", content_type="text/plain; charset=unicode-escape"),
        "can't be decoded as unicode-escape",
    ),
    "a bomb": (
        make_answer(body=zlib.compress(bytes(50_000_000)), content_encoding="deflate"),
        "is larger than 1,000 bytes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_an_unusable_answer_is_not_retried(
    stage: WorkerHarness, server: ScriptedServer, name: str
) -> None:
    answer, sentence = REFUSED[name]

    failed = await fail_call(stage, url=server.says("/a", answer), max_response_bytes=1_000)

    assert sentence in failed.error.message
    assert (failed.error.type, is_retried(failed)) == ("ServiceRefusedError", False)


PACKED = {
    "gzip": ("gzip", gzip.compress(b'{"packed": true}')),
    "gzip in two parts": ("gzip", gzip.compress(b'{"packed":') + gzip.compress(b" true}")),
    "gzip with a tail": ("gzip", gzip.compress(b'{"packed": true}') + b"\0\0\0"),
    "deflate": ("deflate", zlib.compress(b'{"packed": true}')),
    "deflate without a head": ("deflate", zlib.compress(b'{"packed": true}', wbits=-15)),
    "not at all": ("identity", b'\xef\xbb\xbf{"packed": true}'),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("is_slow", [False, True])
async def test_compressed_answers_are_decompressed(
    stage: WorkerHarness, server: ScriptedServer, name: str, is_slow: bool
) -> None:
    encoding, body = PACKED[name]
    answer = make_json_answer(body, content_encoding=encoding)
    if is_slow:  # one byte per chunk
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        head = answer.data.partition(b"\r\n\r\n")[0].replace(b"content-length", b"x-length")
        answer = ScriptedAnswer(head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)

    assert (await call_service(stage, url=server.says("/a", answer)))["body"] == {"packed": True}


@pytest.mark.parametrize("encoding", ["identity", "gzip", "br"])
async def test_an_answer_without_a_body_may_have_a_large_content_length(
    stage: WorkerHarness, server: ScriptedServer, encoding: str
) -> None:
    answer = make_answer(content_length="5000000000", content_encoding=encoding)

    output = await call_service(stage, method="HEAD", url=server.says("/a", answer))

    assert output["headers"]["content-length"] == "5000000000"
    assert output["body"] == ""
