"""Wrong calls of the commands for schedules and webhooks; see `wrong_calls`."""

from tests.e2e.wrong_calls import STRICT, Call

TRIGGER_CALLS = [
    Call("schedule add x", "missing argument 'WORKFLOW'; see 'runnel schedule add --help'"),
    Call("schedule add x good", "give either --cron or --every, got neither"),
    Call("schedule add x good --cron @daily --every 5m", "give either --cron or --every, not both"),
    Call(
        "schedule add x good --cron '61 * * * *'",
        "schedule 'x': cron: the minute of '61 * * * *' is '61'; expected 0 to 59, a list (1,2), "
        "a range (1-5) or a step (*/2)",
    ),
    Call(
        "schedule add x good --cron '0 3 * *'",
        "schedule 'x': cron: expected five fields, minute hour day month weekday (or six, with "
        "seconds in front), got 4 in '0 3 * *'",
    ),
    Call(
        "schedule add x good --cron @dayly",
        "schedule 'x': cron: there is no '@dayly'; expected '@daily', or five fields",
    ),
    Call(
        "schedule add x good --every 5x",
        "--every: expected seconds, or a duration such as 45s, 10m, 1h30m or 2d, got '5x'",
    ),
    Call(
        "schedule add x good --every 0.5s",
        "schedule 'x': interval_s: expected 1 second to 10 years, got 0.5",
    ),
    Call(
        "schedule add x good --every 5m --timezone berlin",
        "--timezone: there is no time zone 'berlin', did you mean Europe/Berlin?",
    ),
    Call(
        "schedule add x good --every 5m --overlap never",
        "--overlap: expected allow, skip or cancel, got 'never'",
    ),
    Call(
        "schedule add 'a b' good.yaml --every 5m --catch-up 1000 --data-dir none",
        "schedule 'a b': 2 problems\n"
        "  - id: expected up to 100 letters, digits, '.', '_' and '-', beginning with a letter or "
        "digit, got 'a b'\n"
        "  - catch_up: expected 0 to 100, got 1000",
    ),
    Call(
        "schedule add x good --every 5m -i 'day={{ tik.date }}'",
        "schedule 'x': input.day: {{ tik.date }}: there is no 'tik'; there is: schedule, tick "
        "(did you mean 'tick'?)",
    ),
    Call(
        "schedule add x good --every 5m -i 'day={{ tick.day }}'",
        "schedule 'x': input.day: {{ tick.day }}: 'tick' has no 'day'; it has: at, timestamp, "
        "local, date, time",
    ),
    Call(
        "schedule add x good --every 5m --label schedule=y",
        "schedule 'x': labels: 'schedule' is reserved for the id of the schedule; rename the label",
    ),
    Call(
        "schedule add x good --cron @daily --ends-at 2020-01-01",
        "schedule 'x': cron: the schedule has no future tick",
    ),
    Call(
        "schedule add x good --every 5m --starts-at tomorrow",
        "--starts-at: expected a time such as 2026-12-01T09:00 or 2026-12-01T08:00:00Z, "
        "got 'tomorrow'",
    ),
    Call(
        "schedule add x god --every 5m",
        "no workflow 'god'; did you mean 'good'?",
    ),
    Call(
        "schedule add x good --every 5m --version 7",
        "no version 7 of workflow 'good'; 'runnel workflows good' shows its versions",
    ),
    Call(
        "schedule add x strict.yaml --every 5m",
        "the input does not fit workflow 'strict': 1 problem\n"
        "  - input: the field 'year' is missing",
        {"strict.yaml": STRICT},
    ),
    Call("schedule show x", "no schedule 'x'; 'runnel schedule list' shows those that exist"),
    Call(
        "schedule pause 'a/b'", "no schedule 'a/b'; 'runnel schedule list' shows those that exist"
    ),
    Call("schedule remove x", "no schedule 'x'; 'runnel schedule list' shows those that exist"),
    Call(
        "schedule next x --data-dir none",
        "no executions: there is no data in 'none'; start one with 'runnel run FILE', "
        "or name another directory with --data-dir",
    ),
    Call(
        "webhook add good --kind gitlab",
        "--kind: expected token, github, slack or none, got 'gitlab'",
    ),
    Call(
        "webhook add good --data-dir none",
        "webhook of 'good': secret: a webhook of kind 'token' needs the name of a secret",
    ),
    Call(
        "webhook add good --kind none --secret s",
        "webhook of 'good': secret: a webhook of kind 'none' uses no secret; remove it, or choose "
        "another kind",
    ),
    Call(
        "webhook add good --kind github --secret Hook -m 'a={{ bdy }}'",
        "webhook of 'good': 2 problems\n"
        "  - secret: expected a name of lower-case letters, digits and '_', "
        "got 'Hook'\n"
        "  - mapping: there is no 'bdy'; expected one of: body, headers, query",
    ),
    Call(
        "webhook add good --kind none -m a",
        "--map can't be read: 1 problem\n  - 'a': expected name=value",
    ),
    Call("webhook add god --kind none", "no workflow 'god'; did you mean 'good'?"),
    Call(
        "webhook show good",
        "no webhook of workflow 'good'; 'runnel webhook list' shows those that exist",
    ),
    Call(
        "webhook remove good",
        "no webhook of workflow 'good'; 'runnel webhook list' shows those that exist",
    ),
]
