"""Wrong calls of `runnel`, each with its error message. The exit code is always 2.

The test writes the files of a call into the folder of `good.yaml`. `<id>` stands for the id of the
execution in that folder. A sentence is the complete message without the leading "error: ".
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Call:
    """A command line, its error message, and the files that it needs."""

    arguments: str
    sentence: str
    files: dict[str, str] = field(default_factory=dict)


GOOD = """\
name: good
nodes:
  - {id: a, handler: output}
"""
STRICT = """\
name: strict
input: {type: object, required: [year], properties: {year: {type: integer}}}
nodes:
  - {id: a, handler: output}
"""
CYCLIC = """\
name: cyclic
nodes:
  - {id: a, handler: output, dependencies: [b]}
  - {id: b, handler: output, dependencies: [a]}
"""
TWO_PROBLEMS = """\
name: two
nodes:
  - {id: a, handler: output, condition: nope.x}
  - {id: a, handler: output}
"""
NO_HANDLER = """\
name: foreign
nodes:
  - {id: a, handler: bogus}
"""

CALLS = [
    Call("lst", "no such command 'lst', did you mean 'list'? See 'runnel --help'"),
    Call(
        "run --inptu a=1",
        "no such option: --inptu, did you mean --input, --input-file? See 'runnel run --help'",
    ),
    Call(
        "bogus",
        "no such command 'bogus'; see 'runnel --help'",
    ),
    Call(
        "--bogus",
        "no such option: --bogus; see 'runnel --help'",
    ),
    Call(
        "run",
        "missing argument 'FILE|NAME'; see 'runnel run --help'",
    ),
    Call(
        "run --bogus good.yaml",
        "no such option: --bogus; see 'runnel run --help'",
    ),
    Call(
        "run missing.yaml",
        "missing.yaml: there is no such file; check the path",
    ),
    Call(
        "run .",
        ".: the path is a directory; name a file in it",
    ),
    Call(
        "run empty.yaml",
        "empty.yaml: the document is empty; expected a workflow with 'name' and 'nodes'",
        {"empty.yaml": ""},
    ),
    Call(
        "run good.yaml other.yaml",
        "too many arguments: other.yaml; see 'runnel run --help'",
    ),
    Call(
        "run good.yaml --concurrency 0",
        "--concurrency: expected at least 1, got 0; see 'runnel run --help'",
    ),
    Call(
        "run good.yaml --concurrency many",
        "--concurrency: expected a whole number, got 'many'; see 'runnel run --help'",
    ),
    Call(
        "run good.yaml --input",
        "option '--input' requires an argument; see 'runnel --help'",
    ),
    Call(
        "run good.yaml --input year",
        "the input can't be read: 1 problem\n  - 'year': expected name=value",
    ),
    Call(
        "run good.yaml --input =1",
        "the input can't be read: 1 problem\n"
        "  - '=1': expected a name before '=', such as count=3 or user.name=Ada",
    ),
    Call(
        "run good.yaml --input a=1 --input a=2",
        "the input can't be read: 1 problem\n  - 'a=2': 'a' is given twice; keep one",
    ),
    Call(
        "run good.yaml --input a:=nope",
        "the input can't be read: 1 problem\n"
        "  - 'a:=nope': expected JSON after ':=': JSON is malformed: invalid character "
        "(byte 4)",
    ),
    Call(
        "run good.yaml --input-file missing.json",
        "missing.json: there is no such file; check the path",
    ),
    Call(
        "run good.yaml --input-file list.json --input a=1",
        "--input sets values of an object, but --input-file list.json holds a list; give the "
        "whole input with --input-file",
        {"list.json": "[1]"},
    ),
    Call(
        "run good.yaml --input-file bad.json",
        "bad.json: line 1, column 2: not JSON: expecting property name enclosed in double quotes",
        {"bad.json": "{"},
    ),
    Call(
        "run good.yaml --input-file nil.json",
        "nil.json: the file is empty; expected the input as JSON or YAML",
        {"nil.json": ""},
    ),
    Call(
        "run good.yaml --label team",
        "--label: expected KEY=VALUE, got 'team'",
    ),
    Call(
        "run good.yaml --label runnel.source=x",
        "--label: names that begin with 'runnel.' are reserved, got 'runnel.source'",
    ),
    Call(
        "run good.yaml --data-dir good.yaml",
        "the data directory good.yaml is a file, expected a folder: choose another path",
    ),
    Call(
        "run strict.yaml",
        "the input does not fit workflow 'strict': 1 problem\n"
        "  - input: the field 'year' is missing",
        {"strict.yaml": STRICT},
    ),
    Call(
        "run strict.yaml --input year=soon",
        "the input does not fit workflow 'strict': 1 problem\n"
        "  - input.year: expected a whole number, got 'soon'",
        {"strict.yaml": STRICT},
    ),
    Call(
        "run cyclic.yaml",
        "cyclic.yaml: 2 problems\n"
        "  - cycle: a → b → a; remove one of these dependencies\n"
        "  - no root: every node waits for another one; expected at least one node "
        "without dependencies, which starts first",
        {"cyclic.yaml": CYCLIC},
    ),
    Call(
        "run nohandler.yaml",
        "nohandler.yaml: node 'a': no handler 'bogus'; there are: call_external_service, "
        "data_processor, external_service, input, llm_service, output, python, shell, sleep, "
        "wait_for_signal, workflow (your own functions run by the handler 'python')",
        {"nohandler.yaml": NO_HANDLER},
    ),
    Call(
        "run tabs.yaml",
        "tabs.yaml: line 3, column 1: found a tab, but YAML allows only spaces; indent with spaces",
        {"tabs.yaml": "name: c\nnodes:\n\t- x\n"},
    ),
    Call(
        "run text.yaml",
        "text.yaml: expected an object with 'name' and 'nodes', got 'hello'",
        {"text.yaml": "hello"},
    ),
    Call(
        "run binary.yaml",
        "binary.yaml: line 1: the text is not UTF-8; save the file as UTF-8",
        {"binary.yaml": "\udcff\udcfe"},
    ),
    Call(
        "validate",
        "missing argument 'FILE'; see 'runnel validate --help'",
    ),
    Call(
        "validate missing.yaml",
        "missing.yaml: there is no such file; check the path",
    ),
    Call(
        "validate two.yaml",
        "two.yaml: 2 problems\n"
        "  - node 'a': more than one node has this id; give each its own\n"
        "  - node 'a': condition refers to 'nope.x', but there is no node 'nope'; there "
        "are: 'input', 'execution', 'a'",
        {"two.yaml": TWO_PROBLEMS},
    ),
    Call(
        "graph missing.yaml",
        "missing.yaml: there is no such file; check the path",
    ),
    Call(
        "graph good.yaml --png",
        "no such option: --png, did you mean --svg? See 'runnel graph --help'",
    ),
    Call(
        "list --status bogus",
        "--status: expected one of pending, running, completed, failed, cancelled, got 'bogus'",
    ),
    Call(
        "list --stuck --status failed",
        "--status: expected one of pending, running, got 'failed'",
    ),
    Call(
        "list --limit 0",
        "--limit: expected at least 1, got 0; see 'runnel list --help'",
    ),
    Call(
        "list --limit x",
        "--limit: expected a whole number, got 'x'; see 'runnel list --help'",
    ),
    Call(
        "list extra",
        "too many arguments: extra; see 'runnel list --help'",
    ),
    Call(
        "show",
        "missing argument 'ID'; see 'runnel show --help'",
    ),
    Call(
        "show nope",
        "no execution 'nope'; 'runnel list' shows the executions",
    ),
    Call(
        "show ''",
        "no execution ''; give an id, the beginning of an id, or @last",
    ),
    Call(
        "show @first",
        "no execution '@first'; 'runnel list' shows the executions",
    ),
    Call(
        "show @last --data-dir none",
        "no executions: there is no data in 'none'; start one with 'runnel run FILE', "
        "or name another directory with --data-dir",
    ),
    Call(
        "history nope",
        "no execution 'nope'; 'runnel list' shows the executions",
    ),
    Call(
        "history nope --data-dir none",
        "no executions: there is no data in 'none'; start one with 'runnel run FILE', "
        "or name another directory with --data-dir",
    ),
    Call(
        "cancel nope",
        "no execution 'nope'; 'runnel list' shows the executions",
    ),
    Call(
        "cancel @last",
        "execution <id> is COMPLETED and can't be cancelled any more",
    ),
    Call(
        "signal @last",
        "missing argument 'NAME'; see 'runnel signal --help'",
    ),
    Call(
        "trigger nope",
        "no execution 'nope'; 'runnel list' shows the executions",
    ),
    Call(
        "signal nope ok",
        "no execution 'nope'; 'runnel list' shows the executions",
    ),
    Call(
        "signal @last ''",
        "expected the name of a signal, got an empty text",
    ),
    Call(
        "signal @last ok --payload nope",
        "--payload: expected JSON or KEY=VALUE, got 'nope'",
    ),
    Call(
        "signal @last ok",
        "execution <id> is COMPLETED and can't be signalled any more",
    ),
    Call(
        "resume nope",
        "no execution 'nope'; 'runnel list' shows the executions",
    ),
    Call(
        "resume a b",
        "too many arguments: b; see 'runnel resume --help'",
    ),
    Call(
        "resume x --data-dir none",
        "no executions: there is no data in 'none'; start one with 'runnel run FILE', "
        "or name another directory with --data-dir",
    ),
    Call(
        "version extra",
        "too many arguments: extra; see 'runnel version --help'",
    ),
]
