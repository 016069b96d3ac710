"""Documents with wrong keys or values, each with all expected problems."""

from tests.unit.authoring.samples import case, head, of_a

WORKFLOWS = [
    case("[]", "expected an object with 'name' and 'nodes', got a list"),
    case("just text", "expected an object with 'name' and 'nodes', got 'just text'"),
    case("name: w", "the key 'nodes' is missing"),
    case("nodes: [{id: a, handler: h}]", "the key 'name' is missing"),
    case("name: w\nnodes: []", "nodes: expected at least one node, got none"),
    case(
        "name: w\nnodes: 3", "nodes: expected a list of nodes, or an object of nodes by id, got 3"
    ),
    case("name: w\nnodes: [x]", "nodes[0]: expected an object with 'id' and 'handler', got 'x'"),
    case("name: w\nnodes: {a: 3}", "nodes.a: expected an object with 'handler', got 3"),
    case(
        "name: w\nnodes: {a: {id: b, handler: h}}",
        "nodes.a: the node has two ids: its key is 'a', its 'id' is 'b'; keep one",
    ),
    case(
        "name: ''\nnodes: [{id: a, handler: h}]",
        "name: expected a printable text of 1 to 200 characters, got ''",
    ),
    case(
        "name: 7\nnodes: [{id: a, handler: h}]",
        "name: expected a printable text of 1 to 200 characters, got 7",
    ),
    case("name: w\nnodes: [{handler: h}]", "nodes[0]: the key 'id' is missing"),
    case("name: w\nnodes: [{id: a}]", "nodes[0]: the key 'handler' is missing"),
    case(
        "name: w\nnodes: [{id: '', handler: h}]",
        "nodes[0].id: expected a printable text of 1 to 200 characters, got ''",
    ),
    case(
        "name: w\nnodes: [{id: 1, handler: h}]",
        "nodes[0].id: expected a printable text of 1 to 200 characters, got 1",
    ),
    case(
        'name: w\nnodes: [{id: "x\\ty", handler: h}]',
        "nodes[0].id: expected a printable text of 1 to 200 characters, got 'x\\ty'",
    ),
    case(
        "name: w\nnodes: [{id: a, handler: h}, {id: b, handlr: h}]",
        "nodes[1]: unknown key 'handlr' (did you mean 'handler'?)",
        "nodes[1]: the key 'handler' is missing",
    ),
    case(head("on_failure: stop"), "on_failure: expected one of fail_fast, continue, got 'stop'"),
    case(
        head("timeout_seconds: -1", "sla_seconds: 0", "max_concurrency: 0"),
        "timeout_seconds: expected a number above 0, got -1",
        "sla_seconds: expected a number above 0, got 0",
        "max_concurrency: expected a whole number ≥ 1, got 0",
    ),
    case(head("priority: 101"), "priority: expected a whole number from -100 to 100, got 101"),
    case(head("priority: high"), "priority: expected a whole number from -100 to 100, got 'high'"),
    case(head("max_concurrency: 2.5"), "max_concurrency: expected a whole number ≥ 1, got 2.5"),
    case(head("labels: {team: [x]}"), "labels.team: expected a text or a number, got a list"),
    case(head("labels: {team: true}"), "labels.team: expected a text or a number, got true"),
    case(head("labels: [x]"), "labels: expected an object of labels, got a list"),
    case(
        head("labels: {'': x}"),
        "labels: the key '': expected a printable text of 1 to 200 characters",
    ),
    case(
        head("rate_limits: {api: {rate_per_second: 0, burst: 0}}"),
        "rate_limits.api.rate_per_second: expected a number above 0, got 0",
        "rate_limits.api.burst: expected a whole number ≥ 1, got 0",
    ),
    case(
        head("rate_limits: {api: {rate: 3}}"),
        "rate_limits.api: unknown key 'rate'; known keys: rate_per_second, burst",
    ),
    case(
        head("rate_limits: {api: 3}"),
        "rate_limits.api: expected an object with 'rate_per_second' and 'burst', got 3",
    ),
    case(head("version: [1]"), "version: expected a text or a number, got a list"),
    case(head("timeout: 3"), "unknown key 'timeout' (did you mean 'timeout_seconds'?)"),
    case(
        head("description: hello"),
        "unknown key 'description'; known keys: name, version, nodes, input, on_failure, "
        "timeout_seconds, sla_seconds, max_concurrency, priority, rate_limits, labels, output",
    ),
    case(
        head("input: {type: integr}"),
        "input: type: expected one of 'array', 'boolean', 'integer', 'null', 'number', 'object', "
        "'string' or a list of at least 1 item, got 'integr'",
    ),
    case(head("input: text"), "input: expected a JSON Schema, which is an object, got 'text'"),
    case(
        head('input: {$ref: "https://example.com/x.json"}'),
        "input: the $ref 'https://example.com/x.json' can't be resolved; expected a part of this "
        "schema, such as '#/$defs/name'",
    ),
    case(
        head('input: {$ref: "#/$defs/missing"}'),
        "input: the $ref '#/$defs/missing' can't be resolved; expected a part of this schema, such "
        "as '#/$defs/name'",
    ),
    case(
        head('input: {properties: {x: {pattern: "("}}}'),
        "input: the pattern '(' is not a regular expression: missing ), unterminated subpattern "
        "at position 0",
    ),
    case(
        head('input: {$schema: "https://example.com/mine"}'),
        "input: $schema: the dialect 'https://example.com/mine' is not known; remove it to use "
        "draft 2020-12",
    ),
    case(
        head("input: {required: x, properties: {y: {minimum: z}}}"),
        "input: properties.y.minimum: expected a number, got 'z'",
        "input: required: expected a list, got 'x'",
    ),
    case(
        head("input: {default: {x: 1}, properties: {x: {type: integer}}}"),
        "input: default: the input itself can't have a default; give one to each of its properties",
    ),
    case(
        head("input: {properties: {user: {properties: {age: {type: integer, default: old}}}}}"),
        "input: the default 'old' does not fit its schema: expected a whole number, got 'old'",
    ),
    case(
        head("input: {properties: {note: {type: string, default: null}}}"),
        "input: the default null does not fit its schema: expected a text, got null",
    ),
]

NODES = [
    case(
        of_a("retry: {max_retries: three}"),
        "nodes[0].retry.max_retries: expected a whole number ≥ 0, got 'three'",
    ),
    case(
        of_a("retry: {max_retries: -1}"),
        "nodes[0].retry.max_retries: expected a whole number ≥ 0, got -1",
    ),
    case(of_a("retry: -1"), "nodes[0].retry: expected a whole number ≥ 0, got -1"),
    case(
        of_a("retry: true"),
        "nodes[0].retry: expected an object, a number of retries, or false, got true",
    ),
    case(
        of_a("retry: {max_retries: 1.5, initial_delay: -1, max_delay: soon}"),
        "nodes[0].retry.max_retries: expected a whole number ≥ 0, got 1.5",
        "nodes[0].retry.initial_delay: expected a number ≥ 0, got -1",
        "nodes[0].retry.max_delay: expected a number ≥ 0, got 'soon'",
    ),
    case(
        of_a("retry: {exponential_base: 0.5, jitter: 1, tries: 3}"),
        "nodes[0].retry.exponential_base: expected a number ≥ 1, got 0.5",
        "nodes[0].retry.jitter: expected true or false, got 1",
        "nodes[0].retry: unknown key 'tries' (did you mean 'max_retries'?)",
    ),
    case(
        of_a("retry: 2", "retry_config: {max_retries: 2}"),
        "nodes[0]: 'retry' and 'retry_config' mean the same; keep one of them",
    ),
    case(
        of_a("retry: {retry_on: [1]}"),
        "nodes[0].retry.retry_on[0]: expected a printable text of 1 to 200 characters, got 1",
    ),
    case(of_a("node_id: b"), "nodes[0]: 'id' and 'node_id' mean the same; keep one of them"),
    case(of_a("timeout_seconds: 0"), "nodes[0].timeout_seconds: expected a number above 0, got 0"),
    case(
        of_a('timeout_seconds: "30"'),
        "nodes[0].timeout_seconds: expected a number above 0, got '30'",
    ),
    case(
        of_a("timeout_seconds: true"),
        "nodes[0].timeout_seconds: expected a number above 0, got true",
    ),
    case(
        of_a("concurrency_limit: 0"),
        "nodes[0].concurrency_limit: expected a whole number ≥ 1, got 0",
    ),
    case(
        of_a("concurrency_key: ''"),
        "nodes[0].concurrency_key: expected a text that is not empty, got ''",
    ),
    case(
        of_a("queue: ''"),
        "nodes[0].queue: expected a printable text of 1 to 200 characters, got ''",
    ),
    case(
        of_a("run_when: always"),
        "nodes[0].run_when: expected one of default, all_completed, none_failed, all_settled, "
        "one_failed, got 'always'",
    ),
    case(
        of_a("resource_tag: 3"),
        "nodes[0].resource_tag: expected a printable text of 1 to 200 characters, got 3",
    ),
    case(of_a("config: [1]"), "nodes[0].config: expected an object, got a list"),
    case(of_a("dependencies: 3"), "nodes[0].dependencies: expected a list of names, got 3"),
    case(
        of_a("dependencies: [1, b]"),
        "nodes[0].dependencies[0]: expected a printable text of 1 to 200 characters, got 1",
    ),
    case(
        of_a("depends_on: b", "dependencies: [b]"),
        "nodes[0]: 'depends_on' and 'dependencies' mean the same; keep one of them",
    ),
    case(
        of_a("cache: {ttl_seconds: 0}"),
        "nodes[0].cache.ttl_seconds: expected a number above 0, got 0",
    ),
    case(
        of_a("cache: {keys: x}"),
        "nodes[0].cache: unknown key 'keys' (did you mean 'key'?)",
    ),
    case(
        of_a("cache: 60"),
        "nodes[0].cache: expected true, or an object with 'key' or 'ttl_seconds', got 60",
    ),
    case(of_a("condition: 3"), "nodes[0].condition: expected a text that is not empty, got 3"),
    case(
        of_a("for_each: 3"),
        "nodes[0].for_each: expected a list, an expression, or an object with 'items', got 3",
    ),
    case(
        of_a("for_each: {list: x}"),
        "nodes[0].for_each: unknown key 'list'; known keys: items",
        "nodes[0].for_each: the key 'items' is missing",
    ),
    case(
        of_a("for_each: ['{{ a.x }}']"),
        "nodes[0].for_each: a list can't contain templates; write one expression: '[a.x, b.y]'",
    ),
    case(
        of_a(f"for_each: {list(range(600))}"),
        "nodes[0].for_each: the list is too long; let a node return it, or pass it "
        "as input and write 'input.items'",
    ),
    case(
        of_a("config: {n: 99999999999999999999}"),
        "nodes[0].config.n: a whole number beyond 64 bits; quote it",
    ),
]
