"""Deliberate defects in the Lua scripts: each breaks a rule of the conformance suite."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.connection_pool import SCRIPTS, make_script
from runnel.backends.redis.options import RedisOptions
from runnel.errors import FencedError, LeaseHeldError
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance import StoreConformance as Rules
from runnel.testing.conformance.claims import FINAL_REPORTS
from runnel.testing.conformance.suite import ROOT_ID, LeaseOwner
from runnel.testing.server_harness import RedisHarness
from tests.redis_server import flush_server

Rule = Callable[..., Any]


class Bug(msgspec.Struct, frozen=True):
    """A defect: the text `before`, which the script has once, is replaced by `after`."""

    script: str
    before: str
    after: str
    rule: Rule


FENCE = "current[1] ~= epoch or current[2] ~= nonce or last + 1 ~= tonumber(sequence)"

BUGS = {
    "no epoch check": Bug(
        "commit",
        FENCE,
        "current[2] ~= nonce or last + 1 ~= tonumber(sequence)",
        Rules.test_a_commit_with_another_epoch_is_refused,
    ),
    "no nonce check": Bug(
        "commit",
        FENCE,
        "current[1] ~= epoch or last + 1 ~= tonumber(sequence)",
        Rules.test_a_commit_of_an_owner_that_released_is_refused,
    ),
    "no sequence check": Bug(
        "commit",
        FENCE,
        "current[1] ~= epoch or current[2] ~= nonce",
        Rules.test_the_same_commit_twice_is_refused_the_second_time,
    ),
    "a gap in the sequence": Bug(
        "commit",
        "last + 1 ~= tonumber(sequence)",
        "last >= tonumber(sequence)",
        Rules.test_a_commit_that_skips_a_sequence_number_is_refused,
    ),
    "the cursor outside the commit": Bug(
        "commit",
        "  redis.call('HSET', partition, 'cursor', consumed)\n"
        "  redis.call('XTRIM', inbox, 'MINID', '=', next_position)\n",
        "",
        Rules.test_each_message_is_consumed_once_over_many_owners,
    ),
    "consumes one too many": Bug(
        "commit",
        "redis.call('XTRIM', inbox, 'MINID', '=', next_position)",
        "redis.call('DEL', inbox)",
        Rules.test_consuming_keeps_messages_that_arrived_meanwhile,
    ),
    "a dropped task stays queued": Bug(
        "commit",
        "    remove_from_lane(lane_prefix, arrival_prefix, location, token)\n",
        "",
        Rules.test_a_dropped_task_is_never_claimed,
    ),
    "a dropped task stays with its worker": Bug(
        "commit",
        "redis.call('HDEL', held_prefix .. worker, token)",
        "",
        Rules.test_a_report_with_an_old_token_is_refused,
    ),
    "a stopped task that is queued is never reported": Bug(
        "commit",
        "redis.call('XADD', inbox, '*', 'm', message_before .. token .. message_after)",
        "",
        Rules.test_a_queued_task_that_is_stopped_is_never_claimed_and_has_ended,
    ),
    "a stopped task starts": Bug(
        "start_tasks",
        "partition and not is_stopping(state)",
        "partition",
        Rules.test_a_stopped_task_that_has_not_started_does_not_start,
    ),
    "a stop is never repeated": Bug(
        "heartbeat_worker",
        "is_held[token] = not is_stopping(started)",
        "is_held[token] = true",
        Rules.test_each_heartbeat_reply_names_the_stopped_tasks_that_a_worker_holds,
    ),
    "timers are never cleared": Bug(
        "commit",
        "call_many('ZREM', timers, cleared)\ncall_many('HDEL', timer_attempts, cleared)\n",
        "",
        Rules.test_due_timers_stay_until_a_commit_clears_them,
    ),
    "a report without an acknowledgement": Bug(
        "report_tasks",
        "call_many('HDEL', held_tasks, ended)",
        "",
        Rules.test_a_report_arrives_once_and_ends_the_claim,
    ),
    "an acknowledgement without a report": Bug(
        "report_tasks",
        "redis.call('XADD', inbox_prefix .. parse_held(value), '*', 'm', message)",
        "",
        Rules.test_a_report_arrives_once_and_ends_the_claim,
    ),
    "a task is claimed twice": Bug(
        "claim_tasks",
        "    tokens[#tokens + 1] = token\n    assign(token, partition, body)\n",
        "    tokens[#tokens + 1] = token\n" + 2 * "    assign(token, partition, body)\n",
        Rules.test_all_tasks_of_many_workflows_and_queues_are_claimed_once,
    ),
    "a claimed task is still counted": Bug(
        "claim_tasks",
        "call_many('ZREM', arrival_prefix .. name, tokens)",
        "",
        Rules.test_a_queue_is_listed_with_its_number_of_waiting_tasks,
    ),
    "a workflow keeps its turn": Bug(
        "claim_tasks",
        "elseif same > 1 then",
        "elseif false then",
        Rules.test_workflows_of_a_queue_take_turns,
    ),
    "a workflow gets all tasks of a claim": Bug(
        "claim_tasks",
        "math.floor(wanted / serving)",
        "wanted",
        Rules.test_a_large_claim_takes_from_each_workflow,
    ),
    "priorities take turns": Bug(
        "claim_tasks",
        "lane_priority(lanes[same + 1]) == lane_priority(lanes[1])",
        "true",
        Rules.test_a_large_claim_takes_the_highest_priority_first,
    ),
    "a priority has no effect on turns": Bug(
        "commit",
        "turn - lane_priority(lane) * 2 ^ 44",
        "turn",
        Rules.test_a_higher_priority_comes_before_older_executions_and_other_workflows,
    ),
    "tasks are taken in the order of arrival": Bug(
        "commit",
        "ARGV[at + 4] .. ' ' .. arrival .. string.format(' %06d', at)",
        # Two commits may have the same millisecond, but not the same microsecond.
        "string.format('%s %06d', unpack(redis.call('TIME'))) .. string.format(' %06d', at)",
        Rules.test_the_next_task_of_an_older_execution_comes_before_younger_executions,
    ),
    "a lost claim is never noticed": Bug(
        "heartbeat_worker",
        "now_missed >= missed_max",
        "false",
        Rules.test_a_task_missing_from_two_heartbeats_is_lost,
    ),
    "a heartbeat is ignored": Bug(
        "lose_worker_tasks",
        "redis.call('HGET', workers, worker) ~= judged_heartbeat",
        "false",
        Rules.test_a_worker_with_a_newer_heartbeat_loses_no_tasks,
    ),
    "a lease is taken from a live owner": Bug(
        "acquire_partition",
        "if not is_judged then",
        "if false then",
        Rules.test_a_lease_that_changed_after_it_was_judged_dead_is_not_acquired,
    ),
    "a lease is renewed after it was lost": Bug(
        "renew_lease",
        "if current[1] ~= epoch or current[2] ~= nonce then",
        "if false then",
        Rules.test_a_former_owner_can_not_renew_its_lease,
    ),
}
BUGS |= {
    "a commit is not in the feed": Bug(
        "commit",
        "  add_feed_entry(feed, ARGV[at])\n",
        "",
        Rules.test_the_end_of_the_feed_is_after_all_stored_changes,
    ),
    "a child is not in the feed": Bug(
        "commit",
        "add_pending_entries(feed, created)\n",
        "",
        Rules.test_a_child_that_a_commit_creates_is_published_as_pending,
    ),
    "a submit is not in the feed": Bug(
        "send_messages",
        "add_pending_entries(feed, created)\n",
        "",
        Rules.test_a_submitted_execution_is_published_as_pending,
    ),
    "an existing execution is in the feed as pending": Bug(
        "send_messages",
        "if id ~= '' and redis.call('HSETNX', headers, id, header) == 1 then",
        "if id ~= '' then",
        Rules.test_a_running_execution_that_is_submitted_again_is_not_published_as_pending,
    ),
}
# The exceptions of a broken rule; the last two if the defect affects the steps of the rule itself.
BROKEN = (AssertionError, pytest.fail.Exception, FencedError, LeaseHeldError)


async def follow(rule: Rule, url: str) -> None:
    clock, ids = FakeClock(), FakeIds()
    backend = await RedisBackend.open(url, RedisOptions(partitions=1), clock=clock, ids=ids)
    try:
        store = backend.store
        lease = await store.acquire(await store.route(ROOT_ID), "one")
        given = {
            "harness": RedisHarness(backend),
            "backend": backend,
            "store": store,
            "mailbox": backend.mailbox,
            "tasks": backend.tasks,
            "owner": LeaseOwner(store, lease),
            "clock": clock,
            "feed": backend.feed,
            "end": next(iter(FINAL_REPORTS)),
        }
        arguments = {name: value for name, value in given.items() if name in _parameters(rule)}
        await rule(Rules(), **arguments)
    finally:
        await backend.close()


def _parameters(rule: Rule) -> tuple[str, ...]:
    return rule.__code__.co_varnames[: rule.__code__.co_argcount]


@pytest.mark.parametrize("name", BUGS)
async def test_a_bug_in_a_script_breaks_a_rule(
    name: str, shared_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = BUGS[name]
    text = SCRIPTS[bug.script].text
    flush_server(shared_redis)
    await follow(bug.rule, shared_redis.url)

    assert text.count(bug.before) == 1
    broken = make_script(bug.script, text.replace(bug.before, bug.after))
    monkeypatch.setitem(SCRIPTS, bug.script, broken)
    flush_server(shared_redis)

    with pytest.raises(BROKEN):
        await follow(bug.rule, shared_redis.url)
