"""Documents with valid keys whose graph can't run, each with all expected problems."""

from tests.unit.authoring.samples import case, node, of_a, workflow

NO_ROOT = (
    "no root: every node waits for another one; expected at least one node without dependencies, "
    "which starts first"
)


GRAPHS = [
    case(
        workflow(node("a"), node("a")),
        "node 'a': more than one node has this id; give each its own",
    ),
    case(
        workflow(node("input")),
        "node 'input': the id is a reserved name of templates; choose another, such as "
        "'input_node'; only a node with the handler 'input', without config and for_each, may "
        "have the id 'input'",
    ),
    case(of_a("dependencies: [a]"), "node 'a': the node depends on itself; remove that dependency"),
    case(
        workflow(node("fetch"), node("b", "dependencies: [fetsch]")),
        "node 'b': it depends on 'fetsch', but there is no such node (did you mean 'fetch'?)",
    ),
    case(
        workflow(node("fetch"), node("b", "dependencies: [zzz]")),
        "node 'b': it depends on 'zzz', but there is no such node; there are: 'fetch', 'b'",
    ),
    case(
        workflow(node("a"), node("b", "dependencies: [a, a]")),
        "node 'b': the dependency 'a' is given twice; keep one",
    ),
    case(
        workflow(
            node("a", "dependencies: [c]"),
            node("b", "dependencies: [a]"),
            node("c", "dependencies: [b]"),
        ),
        "cycle: a → b → c → a; remove one of these dependencies",
        NO_ROOT,
    ),
    case(
        workflow(
            node("root"),
            node("a", "dependencies: [b, root]"),
            node("b", "dependencies: [a]"),
            node("z", "dependencies: [b]"),
        ),
        "cycle: a → b → a; remove one of these dependencies",
        "unreachable: 'z' can never start, because it depends on a cycle",
    ),
    case(
        workflow(
            node("a", "dependencies: [b]"),
            node("b", "dependencies: [a]"),
            node("c", "dependencies: [d]"),
            node("d", "dependencies: [c]"),
        ),
        "cycle: a → b → a; remove one of these dependencies",
        "cycle: c → d → c; remove one of these dependencies",
        NO_ROOT,
    ),
    case(
        workflow(node("a", "condition: b.ok"), node("b", "config: {x: '{{ a.y }}'}")),
        "cycle: a → b → a; remove one of these dependencies",
        NO_ROOT,
    ),
    case(
        of_a("timeout_seconds: 10", "soft_timeout_seconds: 10"),
        "node 'a': soft_timeout_seconds: expected less than timeout_seconds (10), got 10; the "
        "soft timeout has to come first",
    ),
    case(
        of_a("soft_timeout_seconds: 400"),
        "node 'a': soft_timeout_seconds: expected less than timeout_seconds (300), got 400; the "
        "soft timeout has to come first",
    ),
]

HANDLERS = [
    case(
        of_a(handler="sleep"),
        "node 'a': config.seconds: the handler 'sleep' needs this setting; expected a number ≥ 0",
    ),
    case(
        of_a("config: {second: 3}", handler="sleep"),
        "node 'a': config.second: the handler 'sleep' has no such setting (did you mean "
        "'seconds'?)",
        "node 'a': config.seconds: the handler 'sleep' needs this setting; expected a number ≥ 0",
    ),
    case(
        of_a("config: {seconds: -1}", handler="sleep"),
        "node 'a': config.seconds: expected a number ≥ 0, got -1",
    ),
    case(
        of_a("config: {seconds: 1}", "for_each: '[1]'", handler="sleep"),
        "node 'a': for_each: the handler 'sleep' waits once and takes no list; remove for_each",
    ),
    case(
        of_a("config: {signal: ok}", "for_each: '[1]'", handler="wait_for_signal"),
        "node 'a': for_each: the handler 'wait_for_signal' waits once and takes no list; "
        "remove for_each",
    ),
    case(
        of_a(
            "config: {signal: 3, on_timeout: stop, timeout_seconds: soon}",
            handler="wait_for_signal",
        ),
        "node 'a': config.signal: expected a text that is not empty, got 3",
        "node 'a': config.on_timeout: expected one of fail, complete, got 'stop'",
        "node 'a': config.timeout_seconds: expected a number ≥ 0, got 'soon'",
    ),
    case(
        of_a("config: {signal: ok, on_timeout: '{{ input.x }}'}", handler="wait_for_signal"),
        "node 'a': config.on_timeout: expected one of fail, complete, got '{{ input.x }}'",
    ),
    case(
        of_a("config: {function: math.sqrt, args: [1], mode: fiber}", handler="python"),
        "node 'a': config.function: expected the path of a function as 'module:name', got "
        "'math.sqrt'",
        "node 'a': config.args: expected an object, got a list",
        "node 'a': config.mode: expected one of auto, thread, process, loop, got 'fiber'",
    ),
    case(
        of_a(handler="python"),
        "node 'a': config.function: the handler 'python' needs this setting; expected the "
        "path of a function as 'module:name'",
    ),
    case(
        of_a("config: {operation: pik, data: []}", handler="data_processor"),
        "node 'a': config.operation: expected one of pick, map, filter, merge, aggregate, sort, "
        "group, got 'pik'",
    ),
    case(
        of_a("config: {operation: pick, data: [], by: x, feilds: y}", handler="data_processor"),
        "node 'a': config.feilds: the handler 'data_processor' has no such setting (did you mean "
        "'fields'?)",
        "node 'a': config.by: the operation 'pick' has no such setting; it has: fields, missing",
    ),
    case(
        of_a(handler="workflow"),
        "nodes[0].config: the handler 'workflow' needs exactly one of 'definition', 'file' and "
        "'workflow', got none of them",
    ),
    case(
        of_a("config: {file: x.yaml}", handler="workflow"),
        "nodes[0].config.file: only a document that is a file can refer to files; write the "
        "workflow under 'definition'",
    ),
    case(
        of_a("config: {workflow: other}", handler="workflow"),
        "nodes[0].config.workflow: a workflow can't be referred to by name here; write it "
        "under 'definition', or give its 'file'",
    ),
    case(
        of_a("config: {definition: {nodes: []}, file: x}", handler="workflow"),
        "nodes[0].config: the handler 'workflow' needs exactly one of 'definition', 'file' and "
        "'workflow', got 'definition' and 'file'",
    ),
    case(
        of_a("config: {definition: {nodes: [{id: c}]}}", handler="workflow"),
        "nodes[0].config.definition.nodes[0]: the key 'handler' is missing",
    ),
    case(
        of_a("config: {definition: {nodes: []}, inputs: 3}", handler="workflow"),
        "node 'a': config.inputs: the handler 'workflow' has no such setting (did you mean "
        "'input'?)",
        "node 'a' → child: nodes: expected at least one node, got none",
    ),
]
