"""Webhook deliveries start executions: once each, with the mapped input."""

import asyncio
import hashlib
import hmac

import msgspec
import pytest

from runnel.app.secrets import KnownSecrets
from runnel.client.store_client import StoreClient
from runnel.core.commands import CreateExecution
from runnel.core.values import Json
from runnel.errors import (
    InvalidInputError,
    InvalidTriggerError,
    KeyReusedError,
    NotFoundError,
    WebhookRefusedError,
)
from runnel.notify.waiter import Completion
from runnel.ports.archive import ExecutionFilter
from runnel.triggers.webhook import WebhookStore, build_webhook_view, check_webhook
from runnel.triggers.webhook_delivery import Delivery, build_delivery_input, parse_content
from runnel.triggers.webhook_receiver import DeliveryResult, WebhookReceiver
from runnel.views.trigger import Webhook, WebhookKind
from tests.unit.engine.worker.worker_harness import RecordingTelemetry
from tests.unit.triggers.scheduler_harness import SchedulerHarness

K = WebhookKind
SECRET = "a long enough secret"
FORM = "application/x-www-form-urlencoded"
JSON = ("Content-Type", "application/json")
ALL = ExecutionFilter(limit=1_000)
OPEN = Webhook(workflow="report", kind=K.NONE)


class ReceiverHarness:
    def __init__(self) -> None:
        self.stage = SchedulerHarness()
        stage = self.stage
        client = StoreClient(
            stage.backend, stage.clock, stage.ids, get_completion=lambda _id: Completion()
        )
        self.telemetry = RecordingTelemetry()
        self.receiver = WebhookReceiver(
            client,
            stage.backend.archive,
            stage.clock,
            KnownSecrets({"hook": SECRET}),
            telemetry=self.telemetry,
        )

    async def receive(
        self, webhook: Webhook, value: Json, *headers: tuple[str, str]
    ) -> DeliveryResult:
        delivery = Delivery.from_pairs([JSON, *headers], [], msgspec.json.encode(value))
        return await self.receiver.receive(webhook, delivery)

    async def github(self, value: Json, delivery: str) -> DeliveryResult:
        """Returns a delivery that is signed like those of GitHub."""
        mark = signature("sha256=", msgspec.json.encode(value))
        headers = [("X-Hub-Signature-256", mark), ("X-GitHub-Delivery", delivery)]
        return await self.receive(GITHUB, value, *headers)

    async def slack(self, value: Json, *, ago_s: float = 0.0) -> DeliveryResult:
        time = str(int(self.stage.clock.now() - ago_s))
        mark = signature("v0=", f"v0:{time}:".encode() + msgspec.json.encode(value))
        headers = [("X-Slack-Signature", mark), ("X-Slack-Request-Timestamp", time)]
        return await self.receive(SLACK, value, *headers)

    async def inputs(self) -> list[Json]:
        sent = await self.stage.sent()
        return [
            msgspec.json.decode(command.input.data)
            for command in sent
            if isinstance(command, CreateExecution)
        ]


GITHUB = Webhook(workflow="report", kind=K.GITHUB, secret="hook", mapping={"ref": "{{ body.ref }}"})
SLACK = Webhook(workflow="report", kind=K.SLACK, secret="hook")


def signature(prefix: str, data: bytes) -> str:
    return prefix + hmac.new(SECRET.encode(), data, hashlib.sha256).hexdigest()


@pytest.fixture
async def desk() -> ReceiverHarness:
    made = ReceiverHarness()
    await made.stage.add_workflow()
    return made


async def test_a_refused_delivery_is_reported_to_the_operator(desk: ReceiverHarness) -> None:
    with pytest.raises(WebhookRefusedError) as caught:
        await desk.receive(GITHUB, {"ref": "main"})

    expected = {"workflow": "report", "problem": str(caught.value)}
    assert desk.telemetry.named("webhook.refused") == [expected]


async def test_a_delivery_starts_an_execution_with_the_mapped_input(
    desk: ReceiverHarness,
) -> None:
    webhook = Webhook(
        workflow="report",
        secret="hook",
        mapping={
            "id": "{{ body.order.id }}",
            "first": "{{ body.items[0] }}",
            "agent": "{{ headers['user-agent'] }}",
            "page": "{{ query.page | default('1') }}",
            "fixed": 7,
        },
        labels={"team": "x"},
    )

    received = await desk.receive(
        webhook,
        {"order": {"id": 5}, "items": ["a", "b"]},
        ("X-Webhook-Token", SECRET),
        ("User-Agent", "curl"),
    )

    [header] = await desk.stage.backend.archive.list_headers(ALL)
    assert received == DeliveryResult(execution_id=header.execution_id, is_new=True)
    assert header.labels == {"team": "x", "webhook": "token"}
    assert await desk.inputs() == [
        {"id": 5, "first": "a", "agent": "curl", "page": "1", "fixed": 7}
    ]


def test_without_a_mapping_the_input_is_the_request_without_credentials() -> None:
    headers = [
        JSON,
        ("Authorization", "Bearer x"),
        ("Proxy-Authorization", "x"),
        ("Cookie", "x"),
        ("X-Hub-Signature-256", "x"),
        ("X-Hub-Signature", "x"),
        ("X-Slack-Signature", "x"),
        ("X-My-Token", "x"),
        ("X-Twice", "a"),
        ("X-Twice", "b"),
    ]
    query = [("a", "1"), ("b", "2"), ("b", "3")]
    delivery = Delivery.from_pairs(headers, query, b'{"n": 1}')

    execution_input = build_delivery_input(
        Webhook(workflow="w", secret="s", header="X-My-Token"), delivery, parse_content(delivery)
    )

    assert execution_input == {
        "body": {"n": 1},
        "headers": {"content-type": "application/json", "x-twice": "a, b"},
        "query": {"a": "1", "b": ["2", "3"]},
    }


@pytest.mark.parametrize("name", ["authorization", "cookie", "x-my-token", "x-hub-signature-256"])
def test_a_mapping_cannot_read_credentials(name: str) -> None:
    webhook = Webhook(
        workflow="w", secret="s", header="X-My-Token", mapping={"a": f"{{{{ headers['{name}'] }}}}"}
    )
    delivery = Delivery.from_pairs([(name.title(), "x")], [], b"")

    with pytest.raises(InvalidInputError, match=f"'headers' has no '{name}'"):
        build_delivery_input(webhook, delivery, None)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("application/json", b'{"a": [1]}', {"a": [1]}),
        ("application/json; charset=utf-8", b"3", 3),
        ("application/vnd.x+json", b'"t"', "t"),
        (
            "application/x-www-form-urlencoded",
            b"a=1&b=x%20y&b=&c",
            {"a": "1", "b": ["x y", ""], "c": ""},
        ),
        (FORM, b"payload=%7B%22a%22%3A1%7D", {"a": 1}),
        (FORM, b"payload=x&b=1", {"payload": "x", "b": "1"}),
        ("text/plain", b"1", "1"),
        ("", "grün".encode(), "grün"),
        ("application/json", b"", None),
    ],
)
def test_a_body_is_parsed_by_its_content_type(kind: str, body: bytes, expected: Json) -> None:
    assert parse_content(Delivery.from_pairs([("content-type", kind)], [], body)) == expected


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("application/json", b"{", "body: the value is not JSON: "),
        ("application/json", b"[" * 100_000, "body: the value is not JSON: "),
        ("application/json", b'"\xff"', "body: expected text in UTF-8"),
        ("text/plain", b"\xff", "body: expected text in UTF-8"),
        (FORM, b"a&" * 2_000, "a form has at most 1,000 fields"),
        (FORM, b"payload=%7B", "body: the value is not JSON: "),
    ],
)
def test_a_body_that_cannot_be_parsed_is_refused(kind: str, body: bytes, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_content(Delivery.from_pairs([("content-type", kind)], [], body))


async def test_a_delivery_that_does_not_fit_is_refused_with_the_missing_path(
    desk: ReceiverHarness,
) -> None:
    webhook = msgspec.structs.replace(OPEN, mapping={"id": "{{ body.order.id }}"})

    message = "the delivery does not fit webhook 'report': mapping.id: {{ body.order.id }}: "
    with pytest.raises(InvalidInputError) as caught:
        await desk.receive(webhook, {"order": {"n": 1}})

    assert str(caught.value) == message + "'body.order' has no 'id'; it has: n"
    assert await desk.inputs() == []


async def test_a_repeated_github_delivery_returns_the_same_execution(
    desk: ReceiverHarness,
) -> None:
    first = await desk.github({"ref": "main"}, "72d3")
    again = await desk.github({"ref": "main"}, "72d3")
    later = await desk.github({"ref": "main"}, "9fff")
    other = await desk.github({"ref": "dev"}, "72d3")

    assert again == DeliveryResult(execution_id=first.execution_id, is_new=False)
    assert len({first.execution_id, later.execution_id, other.execution_id}) == 3
    assert await desk.inputs() == [{"ref": "main"}, {"ref": "main"}, {"ref": "dev"}]


async def test_a_repeated_slack_event_returns_the_same_execution(
    desk: ReceiverHarness,
) -> None:
    event = {"type": "event_callback", "event_id": "Ev1", "event": {"text": "hi"}}
    first = await desk.slack(event)
    again = await desk.slack(event, ago_s=60.0)
    command = await desk.slack({"text": "hi"})
    replayed = await desk.slack({"text": "hi"})
    later = await desk.slack({"text": "hi"}, ago_s=60.0)

    assert again == DeliveryResult(execution_id=first.execution_id)
    assert replayed == DeliveryResult(execution_id=command.execution_id)
    assert len({first.execution_id, command.execution_id, later.execution_id}) == 3
    with pytest.raises(WebhookRefusedError, match="too old"):
        await desk.slack(event, ago_s=301.0)
    assert len(await desk.inputs()) == 3


async def test_a_slack_challenge_is_returned(desk: ReceiverHarness) -> None:
    received = await desk.slack({"type": "url_verification", "challenge": "3eZbrw1a"})
    with pytest.raises(WebhookRefusedError):
        await desk.receive(SLACK, {"type": "url_verification", "challenge": "3eZbrw1a"})

    assert received == DeliveryResult(challenge="3eZbrw1a")
    assert await desk.inputs() == []


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Request-Id"])
async def test_calls_with_the_same_request_id_are_one_execution(
    desk: ReceiverHarness, name: str
) -> None:
    first = await desk.receive(OPEN, {"n": 1}, (name, "k"), ("Date", "today"))
    again = await desk.receive(OPEN, {"n": 1}, (name, "k"), ("Date", "tomorrow"))
    with pytest.raises(KeyReusedError, match=f"'k' belongs to execution {first.execution_id}"):
        await desk.receive(OPEN, {"n": 2}, (name, "k"))
    other = await desk.receive(OPEN, {"n": 1}, (name, "l"))

    assert again == DeliveryResult(execution_id=first.execution_id)
    assert other.is_new
    assert len(await desk.inputs()) == 2


async def test_calls_without_a_request_id_are_separate_executions(desk: ReceiverHarness) -> None:
    ids = {(await desk.receive(OPEN, {"n": 1})).execution_id for _ in range(3)}

    assert len(ids) == 3


async def test_the_template_delivery_id_identifies_deliveries(desk: ReceiverHarness) -> None:
    webhook = msgspec.structs.replace(OPEN, delivery_id="{{ body.order.id }}")
    key = ("Idempotency-Key", "ignored")

    first = await desk.receive(webhook, {"order": {"id": 5}}, key)
    again = await desk.receive(webhook, {"order": {"id": 5}})
    other = await desk.receive(webhook, {"order": {"id": "6"}}, key)

    assert again == DeliveryResult(execution_id=first.execution_id)
    assert other.is_new
    wrong_ones: list[Json] = [None, [], "", "x" * 501, 1.5]
    for wrong in wrong_ones:
        with pytest.raises(InvalidInputError, match="delivery_id of webhook 'report': expected"):
            await desk.receive(webhook, {"order": {"id": wrong}})
    with pytest.raises(InvalidInputError, match=r"'body' has no 'order'"):
        await desk.receive(webhook, {"n": 1})


async def test_concurrent_copies_of_a_delivery_start_one_execution(desk: ReceiverHarness) -> None:
    received = await asyncio.gather(*(desk.github({"ref": "main"}, "1") for _ in range(20)))

    assert len({result.execution_id for result in received}) == 1
    assert len([*await desk.stage.backend.archive.list_headers(ALL)]) == 1


async def test_without_the_secret_every_delivery_is_refused(
    desk: ReceiverHarness,
) -> None:
    webhook = Webhook(workflow="report", secret="other")

    with pytest.raises(WebhookRefusedError, match="does not know the secret of this webhook"):
        await desk.receive(webhook, {}, ("X-Webhook-Token", ""))


async def test_a_delivery_for_a_deleted_workflow_is_not_found(desk: ReceiverHarness) -> None:
    with pytest.raises(NotFoundError, match="no workflow 'gone'"):
        await desk.receive(msgspec.structs.replace(OPEN, workflow="gone"), {})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"workflow": ""}, "workflow: expected 1 to 500 characters, got 0"),
        ({"version": 0}, "version: expected at least 1, got 0"),
        ({"kind": K.TOKEN}, "secret: a webhook of kind 'token' needs the name of a secret"),
        ({"secret": "s"}, "secret: a webhook of kind 'none' uses no secret"),
        ({"kind": K.SLACK, "secret": "A-b"}, "secret: expected a name of lower-case"),
        ({"header": "a b"}, "header: expected the name of a header, got 'a b'"),
        ({"labels": {"runnel.source": "/"}}, "labels: 'runnel.source' begins with 'runnel.'"),
        ({"labels": {"webhook": "x"}}, "labels: 'webhook' is reserved for the kind of webhook"),
        (
            {"mapping": {"a": "{{ secrets.x }}"}},
            "mapping: there is no 'secrets'; expected one of: body",
        ),
        ({"mapping": {"a": "{{ body. }}"}}, "mapping.a: "),
        ({"mapping": "x" * 70_000}, "mapping: expected at most 65,536 bytes, got 70,002"),
        (
            {"delivery_id": "{{ id }}"},
            "delivery_id: there is no 'id'; expected one of: body, headers",
        ),
    ],
)
def test_a_wrong_webhook_is_refused_with_every_problem(
    fields: dict[str, Json], problem: str
) -> None:
    with pytest.raises(InvalidTriggerError) as caught:
        check_webhook(msgspec.structs.replace(OPEN, **fields))

    [reported] = caught.value.problems
    assert reported.startswith(problem)


async def test_webhooks_are_stored_replaced_and_removed(desk: ReceiverHarness) -> None:
    webhooks = WebhookStore(desk.stage.backend, desk.stage.clock)
    added = await webhooks.add(GITHUB)
    with pytest.raises(InvalidTriggerError):
        await webhooks.add(msgspec.structs.replace(GITHUB, secret=None), replaces=True)
    replaced = await webhooks.add(SLACK, replaces=True)
    current = await webhooks.get("report")
    listed = await webhooks.list()
    await webhooks.remove("report")

    now = desk.stage.clock.now()
    assert added == build_webhook_view(msgspec.structs.replace(GITHUB, created_at=now))
    assert current == replaced == listed[0]
    for name in ("report", "\ud800", ""):
        with pytest.raises(NotFoundError, match="no webhook of workflow"):
            await webhooks.get(name)
        with pytest.raises(NotFoundError):
            await webhooks.remove(name)
    with pytest.raises(NotFoundError, match="no workflow 'none'"):
        await webhooks.add(msgspec.structs.replace(OPEN, workflow="none"))
