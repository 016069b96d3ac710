"""Connections to Redis: how they are opened, shared, abandoned and lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.connection_pool import SHARED_BYTES_MAX, RedisConnectionPool
from runnel.backends.redis.options import RedisOptions
from runnel.engine.clock import RealClock
from runnel.errors import StoreError
from tests.certificates import make_certificate
from tests.redis_relay import RedisRelay, open_relay
from tests.redis_server import get_password
from tests.scripted_http_server import LOOPBACK
from tests.waiting import wait_until

CALL_S = 5.0
SHORT_S = 0.3
NOWHERE = "redis://:geheim@127.0.0.1:1/0"


@asynccontextmanager
async def opened(
    url: str, *, call_s: float = CALL_S, calls_max: int = 16
) -> AsyncIterator[RedisConnectionPool]:
    options = RedisOptions(call_timeout_s=call_s, calls_max=calls_max)
    pool = RedisConnectionPool(url, RealClock(), options)
    try:
        yield pool
    finally:
        await pool.close()


def url_of(server: RedisServer, way: RedisRelay, scheme: str = "redis", query: str = "") -> str:
    return f"{scheme}://:{get_password(server)}@localhost:{way.port}/0{query}"


async def test_a_socket_file_leads_to_the_server(shared_redis: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    url = f"unix://:{get_password(shared_redis)}@{path}?db=3"

    async with open_relay(shared_redis, path=path), opened(url) as pool:
        assert b" db=3 " in await pool.call("CLIENT", "INFO")
        assert pool.address == f"{path}/3"


async def test_a_server_with_a_trusted_certificate_is_used_over_tls(
    shared_redis: RedisServer, openssl: str, tmp_path: Path
) -> None:
    path = make_certificate(openssl, tmp_path)

    async with open_relay(shared_redis, certificate=path) as way:
        url = url_of(shared_redis, way, "rediss", f"?ssl_ca_certs={path}")
        async with opened(url) as pool:
            large = b"x" * 300_000
            await pool.call("SET", "over-tls", large)
            assert await pool.call("GET", "over-tls") == large
            assert await pool.call_blocking("XREAD", "STREAMS", "no-such", "0", wait_s=0.01) is None


UNTRUSTED = {
    "self-signed certificate": ("localhost", ""),
    "Hostname mismatch": ("elsewhere", "?ssl_ca_certs={path}"),
    "No such file": ("localhost", "?ssl_ca_certs=/no/such/file"),
}


@pytest.mark.parametrize("why", UNTRUSTED)
async def test_an_untrusted_server_does_not_receive_the_password(
    shared_redis: RedisServer, openssl: str, tmp_path: Path, why: str
) -> None:
    host, options = UNTRUSTED[why]
    path = make_certificate(openssl, tmp_path, host=host)

    async with open_relay(shared_redis, certificate=path) as way:
        url = url_of(shared_redis, way, "rediss", options.format(path=path))
        async with opened(url) as pool:
            with pytest.raises(StoreError, match=why) as caught:
                await pool.call("PING")
    assert way.asked == b""
    assert get_password(shared_redis) not in str(caught.value)


async def test_the_check_of_a_certificate_can_be_disabled(
    shared_redis: RedisServer, openssl: str, tmp_path: Path
) -> None:
    path = make_certificate(openssl, tmp_path, host="elsewhere")

    async with open_relay(shared_redis, certificate=path) as way:
        url = url_of(shared_redis, way, "rediss", "?ssl_cert_reqs=none")
        async with opened(url) as pool:
            assert await pool.call("PING") == b"PONG"


async def test_a_named_user_can_log_in_with_a_client_name(
    own_redis: RedisServer,
) -> None:
    async with opened(own_redis.url) as pool:
        await pool.call("ACL", "SETUSER", "ann@b", "on", ">pass/word", "~*", "+@all")
    url = f"redis://ann%40b:pass%2Fword@{LOOPBACK}:{own_redis.port}/2?client_name=me"

    async with opened(url) as pool:
        about = await pool.call("CLIENT", "INFO")

    assert b" name=me " in about
    assert b" db=2 " in about
    assert b" user=ann@b " in about


@pytest.mark.parametrize("user", ["", "ann"])
async def test_a_wrong_password_is_refused_without_repeating_it(
    shared_redis: RedisServer, user: str
) -> None:
    async with opened(f"redis://{user}:geheim@{LOOPBACK}:{shared_redis.port}/0") as pool:
        with pytest.raises(StoreError, match="WRONGPASS") as caught:
            await pool.call("PING")
    assert "geheim" not in str(caught.value)


async def test_the_error_for_an_unreachable_server_names_its_address(
    shared_redis: RedisServer,
) -> None:
    async with opened(NOWHERE) as pool:
        with pytest.raises(StoreError, match=r"Error 111 connecting to 127.0.0.1:1/0: Conn"):
            await pool.call("PING")
        with pytest.raises(StoreError, match="Error 111"):
            await pool.call_blocking("XREAD", "STREAMS", "a", "0", wait_s=5.0)


async def test_a_command_that_the_server_refuses_keeps_the_connection(
    shared_redis: RedisServer,
) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        with pytest.raises(StoreError, match=r"'NONSENSE' failed.*unknown command"):
            await pool.call("NONSENSE")
        assert await pool.call("PING") == b"PONG"
        assert way.connections == 1


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_read_only_error_closes_all_connections(
    own_redis: RedisServer, *, is_large: bool
) -> None:
    """The server was replaced by another one, and its address may lead to that one now."""
    async with open_relay(own_redis) as way, opened(url_of(own_redis, way)) as pool:
        await pool.call("REPLICAOF", LOOPBACK, 1)
        before = way.connections
        with pytest.raises(StoreError, match="READONLY"):
            await pool.call("SET", "a", "b", is_large=is_large)
        await pool.call("REPLICAOF", "NO", "ONE")

        assert way.connections == before + 1 + is_large
        assert await pool.call("SET", "a", "b", is_large=is_large) == b"OK"


async def test_calls_share_one_connection_and_each_gets_its_own_reply(
    shared_redis: RedisServer,
) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        answers = await asyncio.gather(*[pool.call("ECHO", number) for number in range(100)])

        assert answers == [b"%d" % number for number in range(100)]
        assert way.connections == 1


async def test_the_reply_to_a_cancelled_call_is_discarded(shared_redis: RedisServer) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        await pool.call("PING")
        way.is_clear.clear()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(pool.call("ECHO", f"number{n}")) for n in range(5)]
            await wait_until(lambda: b"number4" in way.asked)
            calls[1].cancel()
            calls[3].cancel()
            await asyncio.wait([calls[1], calls[3]])
            way.is_clear.set()

        assert [call.result() for call in calls[::2]] == [b"number0", b"number2", b"number4"]
        assert way.connections == 1


async def test_a_cancelled_call_occupies_its_slot_until_the_reply_arrives(
    shared_redis: RedisServer,
) -> None:
    async with (
        open_relay(shared_redis) as way,
        opened(url_of(shared_redis, way), calls_max=2) as pool,
    ):
        await pool.call("PING")
        way.is_clear.clear()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(pool.call("ECHO", f"number{n}")) for n in range(3)]
            await wait_until(lambda: b"number1" in way.asked)
            for call in calls[:2]:
                call.cancel()
            await asyncio.wait(calls[:2])
            second = group.create_task(pool.call("ECHO", "later"))
            with pytest.raises(TimeoutError):
                await wait_until(lambda: b"number2" in way.asked, deadline_s=0.05)
            way.is_clear.set()

        assert (calls[2].result(), second.result()) == (b"number2", b"later")


async def test_an_unresponsive_server_fails_all_pending_calls(
    shared_redis: RedisServer,
) -> None:
    async with (
        open_relay(shared_redis) as way,
        opened(url_of(shared_redis, way), call_s=SHORT_S) as pool,
    ):
        await pool.call("PING")
        way.is_clear.clear()

        answers = await asyncio.gather(
            *[pool.call("ECHO", number) for number in range(5)], return_exceptions=True
        )

        assert {str(answer) for answer in answers} == {
            "Redis: 'ECHO' failed, and it is unknown whether it was executed: no reply within 0.3 s"
        }
        way.is_clear.set()
        assert await pool.call("ECHO", "again") == b"again"
        assert way.connections == 2


async def test_the_timeout_does_not_close_a_connection_that_answers(
    shared_redis: RedisServer,
) -> None:
    async with (
        open_relay(shared_redis) as way,
        opened(url_of(shared_redis, way), call_s=0.1) as pool,
    ):
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.5
        while loop.time() < end:
            assert await pool.call("PING") == b"PONG"
        assert way.connections == 1


async def test_callers_that_wait_for_one_connection_fail_together(
    shared_redis: RedisServer,
) -> None:
    """One after the other, each with a connection that times out, would take 20 times as long."""
    async with (
        open_relay(shared_redis) as way,
        opened(url_of(shared_redis, way), call_s=SHORT_S) as pool,
    ):
        way.is_clear.clear()

        async with asyncio.timeout(10 * SHORT_S):
            answers = await asyncio.gather(
                *[pool.call("PING") for _ in range(20)], return_exceptions=True
            )

        assert {type(answer) for answer in answers} == {StoreError}
        assert "no connection to localhost:" in str(answers[0])
        # one for the 16 calls with a slot, and one for those after them
        assert way.connections == 2


async def test_cancelling_one_caller_does_not_cancel_the_shared_connection_attempt(
    shared_redis: RedisServer,
) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(pool.call("ECHO", "first"))
            second = group.create_task(pool.call("ECHO", "second"))
            await asyncio.sleep(0)
            first.cancel()

        assert second.result() == b"second"


async def test_a_lost_connection_fails_its_pending_calls_and_is_reopened(
    shared_redis: RedisServer,
) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        waiting = asyncio.ensure_future(
            pool.call_blocking("XREAD", "STREAMS", "no-such", "0", wait_s=9)
        )
        await pool.call("PING")
        await wait_until(lambda: b"no-such" in way.asked)
        way.is_clear.clear()
        call = asyncio.ensure_future(pool.call("ECHO", "cut"))
        await wait_until(lambda: b"cut" in way.asked)

        way.cut()
        answers = await asyncio.gather(waiting, call, return_exceptions=True)

        assert {type(answer) for answer in answers} == {StoreError}
        way.is_clear.set()
        assert await pool.call("PING") == b"PONG"


LARGE: dict[str, Callable[[RedisConnectionPool], "asyncio.Future[object]"]] = {
    "command": lambda pool: asyncio.ensure_future(pool.call("ECHO", b"x" * SHARED_BYTES_MAX)),
    "answer": lambda pool: asyncio.ensure_future(pool.call("GET", "large", is_large=True)),
}


@pytest.mark.parametrize("kind", LARGE)
async def test_a_large_call_does_not_delay_others(shared_redis: RedisServer, kind: str) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        large = b"x" * SHARED_BYTES_MAX
        await pool.call("SET", "large", large)
        await pool.call("PING")

        assert (await LARGE[kind](pool), await pool.call("ECHO", "small")) == (large, b"small")
        assert way.connections == 2


async def test_a_cancelled_large_call_closes_only_its_own_connection(
    shared_redis: RedisServer,
) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        await pool.call("PING")
        await pool.call("GET", "large", is_large=True)
        way.is_clear.clear()
        given_up = asyncio.ensure_future(pool.call("GET", "given-up", is_large=True))
        await wait_until(lambda: b"given-up" in way.asked)
        given_up.cancel()
        await asyncio.wait([given_up])
        way.is_clear.set()

        assert await pool.call("ECHO", "small") == b"small"
        assert await pool.call("GET", "large", is_large=True) in (None, b"x" * SHARED_BYTES_MAX)
        assert way.connections == 3


async def test_closing_the_pool_fails_pending_calls(shared_redis: RedisServer) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        await pool.call("PING")
        way.is_clear.clear()
        call = asyncio.ensure_future(pool.call("ECHO", "closed"))
        await wait_until(lambda: b"closed" in way.asked)

        await pool.close()

        with pytest.raises(StoreError, match="this process closed the connection"):
            await call


async def test_a_connection_that_opens_while_the_pool_closes_is_closed_too(
    shared_redis: RedisServer,
) -> None:
    async with open_relay(shared_redis) as way, opened(url_of(shared_redis, way)) as pool:
        way.is_clear.clear()
        call = asyncio.ensure_future(pool.call("ECHO", "closed"))
        await wait_until(lambda: b"INFO" in way.asked)

        await pool.close()
        way.is_clear.set()

        with pytest.raises(StoreError, match="this process closed the connection pool"):
            await call
        await wait_until(lambda: way.is_idle)
        assert b"closed" not in way.asked


ODD = {
    b"HTTP/1.1 400 Bad Request\r\n\r\n": "does not speak the Redis protocol",
    b"-ERR max number of clients reached\r\n": "max number of clients reached",
    b"": "closed the connection",
    b":1\r\n": "is not a Redis server",
    b"*-1\r\n": "is not a Redis server",
}


@pytest.mark.parametrize("said", ODD)
async def test_a_server_that_is_not_redis_is_a_store_error(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened(f"redis://{LOOPBACK}:{port}/0") as pool:
        with pytest.raises(StoreError, match=ODD[said]):
            await pool.call("PING")
