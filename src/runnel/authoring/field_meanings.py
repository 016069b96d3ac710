"""What the keys of a document mean, in one sentence each: for editors and for the reference."""

from collections.abc import Mapping

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "workflow": {
        "name": "What it is called; together with its content it makes the version",
        "version": "A note for people: versions are numbered by content, so it is not kept",
        "nodes": "The steps: a list, or an object by id",
        "input": "A JSON Schema that the input of an execution has to fit",
        "on_failure": "Whether a failed node ends the rest, or only what depends on it",
        "timeout_seconds": "How long an execution may take before it is ended",
        "sla_seconds": "How long it should take: later is reported, and ends nothing",
        "max_concurrency": "How many tasks and child executions may be under way at a time",
        "rate_limits": "Token buckets by resource tag, shared by all executions",
        "labels": "Names and values to find its executions by",
        "output": "The result, with templates; without it, the output of the last nodes",
    },
    "node": {
        "id": "Its name in templates, histories and commands",
        "handler": "What does the work: one that comes with Runnel, or your own",
        "config": "The settings of the handler, with templates",
        "dependencies": "Its parents; without the key they are those that its templates name",
        "condition": "An expression; when it is false, the node is skipped",
        "run_when": "What its parents must have come to",
        "retry": "When it is tried again: a policy, a number of retries, or false",
        "timeout_seconds": "How long one attempt may take",
        "soft_timeout_seconds": "When an exception is raised inside of an attempt, to clean up",
        "resource_tag": "The bucket of rate_limits that each attempt takes a token of",
        "concurrency_key": "A template: of those with the same key, only some run at a time",
        "concurrency_limit": "How many of a concurrency_key run at a time",
        "for_each": "A list, known when it runs: one task for each item",
        "queue": "Where its tasks wait, if not in the queue of the handler",
        "cache": "Whether an earlier result may be taken, and for how long: true, or an object",
    },
    "retry": {
        "max_retries": "How often it is tried again after the first attempt",
        "initial_delay": "Seconds before the first retry",
        "max_delay": "The longest delay, in seconds",
        "exponential_base": "By how much each delay is longer than the one before",
        "jitter": "Whether delays are spread by chance, so that not all come back at once",
        "retry_on": "Names of exceptions, or of their bases, that are retried besides the usual",
        "no_retry_on": "Names of exceptions that are not retried; it wins over retry_on",
    },
    "cache": {
        "key": "A template: what has to be the same, instead of all that the task is given",
        "ttl_seconds": "How long a result is kept",
    },
    "rate_limit": {
        "rate_per_second": "Tokens that come back each second",
        "burst": "Tokens that can be saved up",
    },
}
