"""Wrong calls of commands for batches, dead letters and versions; see `wrong_calls`."""

from tests.e2e.wrong_calls import Call

LONG = "x" * 300

DAILY_CALLS = [
    Call(
        f"init {LONG}",
        f"{LONG}: the project can't be made: File name too long",
    ),
    Call(
        f"list --data-dir {LONG}",
        f"the data directory {LONG} can't be read: File name too long; "
        "name another one with --data-dir",
    ),
    Call(
        f"run {LONG}.py",
        f"{LONG}.py: the file can't be read: File name too long",
    ),
    Call(
        f"batch good.yaml --inputs list.json --output {LONG}",
        f"--output {LONG}: the file can't be written: File name too long",
        {"list.json": "[1]"},
    ),
    Call(
        "batch good.yaml --inputs good.yaml --output -",
        "--output -: stdout is for the summary; name a file",
    ),
    Call(
        "batch good.yaml --inputs list.json --priority 101",
        "invalid value for '--priority': 101 is not in the range -100<=x<=100; "
        "see 'runnel batch --help'",
        {"list.json": "[1]"},
    ),
    Call(
        "batch good.yaml",
        "missing option '--inputs'; see 'runnel batch --help'",
    ),
    Call(
        "batch good.yaml --inputs nope.jsonl",
        "--inputs nope.jsonl: the file can't be read: No such file or directory",
    ),
    Call(
        "batch good.yaml --inputs -",
        "--inputs -: give the batch a --name, so that the same command can continue it",
    ),
    Call(
        "batch good.yaml --inputs list.json --output no/such/folder",
        "--output no/such/folder: the file can't be written: No such file or directory",
        {"list.json": "[1]"},
    ),
    Call(
        "batch good.yaml --inputs good.jsonl --id-field id",
        "--inputs good.jsonl: 1 problem\n"
        "  - line 1: expected id to be a text or a whole number, got null",
        {"good.jsonl": "[1]"},
    ),
    Call(
        "list --since yesterday",
        "--since: expected how long ago (30m, 2h, 7d) or a date (2026-01-31, 2026-01-31T09:30, "
        "2026-01-31T09:30Z), got 'yesterday'",
    ),
    Call(
        "list --label team",
        "--label: expected KEY=VALUE, got 'team'",
    ),
    Call(
        "list --stuck --count",
        "--stuck and --count print different lists; give only one of them",
    ),
    Call(
        "workflows --delete",
        "--delete: give the name of a workflow, and nothing else",
    ),
    Call(
        "workflows unknown --delete --yes",
        "no workflow 'unknown'",
    ),
    Call(
        "show x --item 1",
        "--item: name the node as well: 'runnel show ID --node NODE --item 1'",
    ),
    Call(
        "show x --output --item 1",
        "--item: name the node as well: 'runnel show ID --node NODE --item 1'",
    ),
    Call(
        "show x --output --input",
        "--output and --input: choose one of them",
    ),
    Call(
        "show x --node a --after 1 --output",
        "--after: not possible with --output, which prints one value: use --item",
    ),
    Call(
        "show x --node a --input",
        "--input prints the input of the execution, not of a node: leave out --node; "
        "'runnel show ID --node NODE' shows the inputs of a node",
    ),
    Call(
        "show @last --node nope --output",
        "no node 'nope'; there are: 'a'",
    ),
    Call(
        "show @last --node a --item 0 --output",
        "no item 'a[0]'; the node is not a map",
    ),
    Call(
        "show @last --node a[0] --output",
        "no item 'a[0]'; the node is not a map",
    ),
    Call(
        "cancel",
        "give the id of an execution, or a filter: --workflow, --label, …",
    ),
    Call(
        "cancel x --workflow y",
        "give the id of an execution, or filters; not both",
    ),
    Call(
        "cancel --status failed",
        "final executions can't be cancelled; select running or pending ones",
    ),
    Call(
        "rerun --status running",
        "only final executions can be rerun; select failed, cancelled or completed",
    ),
    Call(
        "rerun --workflow x --input a=1",
        "--input and --input-file change one execution only; give its id",
    ),
    Call(
        "init good.yaml",
        "good.yaml: the project can't be made: File exists",
    ),
    Call(
        "init a b",
        "too many arguments: b; see 'runnel init --help'",
    ),
    Call(
        "top --every 0",
        "--every: expected at least 0.2, got 0.0; see 'runnel top --help'",
    ),
    Call(
        "top --every nan",
        "--every: expected a number, got 'nan'; see 'runnel top --help'",
    ),
    Call(
        "top --every soon",
        "--every: expected a number, got 'soon'; see 'runnel top --help'",
    ),
    Call(
        "dlq purge --older-than nan --yes",
        "--older-than: expected a number, got 'nan'; see 'runnel dlq purge --help'",
    ),
    Call(
        "graph good.yaml --svg --json",
        "--svg and --json are different output formats; give one of them",
    ),
    Call(
        "rerun @last --all --failed",
        "--all runs every node, and --failed runs only some nodes; give one of them",
    ),
    Call(
        "rerun @last --all --from a",
        "--all runs every node, and --from runs only some nodes; give one of them",
    ),
    Call(
        "run leaves.py",
        "leaves.py: importing the file ends the program (leaves.py, line 2); move the code that "
        'runs as a script below if __name__ == "__main__":',
        {"leaves.py": "import sys\nsys.exit()\n"},
    ),
    Call(
        "dlq show nope",
        "no dead letter 'nope'; 'runnel dlq list' shows all dead letters",
    ),
    Call(
        "dlq shw nope",
        "no such command 'shw', did you mean 'show'? See 'runnel dlq --help'",
    ),
    Call(
        "dlq retry",
        "give the names of dead letters, or --all",
    ),
    Call(
        "dlq retry --queue python",
        "give the names of dead letters, or --all",
    ),
    Call(
        "dlq retry x --all",
        "give the names of dead letters, or --all and filters; not both",
    ),
    Call(
        "dlq purge",
        "give the names of dead letters, or --all or a filter",
    ),
    Call(
        "dlq purge --older-than -1.5",
        "--older-than: expected at least 0, got -1.5; see 'runnel dlq purge --help'",
    ),
    Call(
        "dlq retry x --data-dir none",
        "no executions: there is no data in 'none'; start one with 'runnel run FILE', "
        "or name another directory with --data-dir",
    ),
    Call(
        "workflows god",
        "no workflow 'god'; did you mean 'good'?",
    ),
    Call(
        "workflows zzz",
        "no workflow 'zzz'; 'runnel workflows' lists the stored workflows",
    ),
    Call(
        "workflows good --version 7",
        "no version 7 of workflow 'good'; it has only version 1",
    ),
    Call(
        "workflows good --diff 99999999999999999999",
        "no version 99999999999999999999 of workflow 'good'; it has only version 1",
    ),
    Call(
        "workflows good --version 0",
        "--version: expected at least 1, got 0; see 'runnel workflows --help'",
    ),
    Call(
        "workflows --version 1",
        "--version: name the workflow as well: 'runnel workflows NAME --version 1'",
    ),
]
