"""A message that can't be read keeps its place, and stops nobody."""

from runnel.ports.store import Mailbox
from runnel.testing.conformance.suite import Owner, Suite, hand_over
from runnel.testing.conformance.values import message
from runnel.testing.harness import Harness

NOT_JSON = b"\xff\x00 not a message"
CUT_OFF = b'[1,{"type":"CancelExecution","execu'


class PoisonRules(Suite):
    async def test_an_unreadable_message_comes_with_its_body_and_what_is_wrong(
        self, harness: Harness, owner: Owner
    ) -> None:
        await harness.inject_message(owner.partition, NOT_JSON)

        (entry,) = await owner.read()

        assert (entry.command, entry.body) == (None, NOT_JSON)
        assert entry.problem

    async def test_an_unreadable_message_keeps_its_place(
        self, harness: Harness, mailbox: Mailbox, owner: Owner
    ) -> None:
        await mailbox.send([message("before")])
        await harness.inject_message(owner.partition, CUT_OFF)
        await mailbox.send([message("behind")])

        assert await owner.commands() == [message("before"), None, message("behind")]

    async def test_an_unreadable_message_is_consumed_like_any_other(
        self, harness: Harness, mailbox: Mailbox, owner: Owner
    ) -> None:
        await harness.inject_message(owner.partition, NOT_JSON)
        await mailbox.send([message("behind")])
        entries = await owner.read()

        await owner.consume(entries[0].position)

        assert await (await hand_over(owner)).commands() == [message("behind")]
