"""Results that any worker may share, for as long as their tasks said."""

from runnel.ports.store import TaskQueue
from runnel.testing.conformance.suite import Suite
from runnel.testing.harness import Harness

DATA = b'{"n": 1}'


class ResultRules(Suite):
    async def test_a_result_is_found_by_its_key_until_its_time_is_over(
        self, harness: Harness, tasks: TaskQueue
    ) -> None:
        await tasks.keep("k", DATA, ttl_s=60.0)

        found = [await tasks.recall("k"), await tasks.recall("other")]
        await harness.pass_time(59.0)
        found.append(await tasks.recall("k"))
        await harness.pass_time(2.0)
        found.append(await tasks.recall("k"))

        assert found == [DATA, None, DATA, None]

    async def test_a_result_that_is_kept_again_is_replaced_with_its_time(
        self, harness: Harness, tasks: TaskQueue
    ) -> None:
        await tasks.keep("k", DATA, ttl_s=10.0)

        await tasks.keep("k", b"2", ttl_s=100.0)

        await harness.pass_time(50.0)
        assert await tasks.recall("k") == b"2"
