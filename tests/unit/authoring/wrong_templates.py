"""Templates and conditions with unknown names, each with all expected problems."""

from tests.unit.authoring.samples import case, head, node, of_a, workflow

TEMPLATES = [
    case(
        workflow(node("fetch"), node("b", "config: {x: '{{ fetsch.y }}'}")),
        "node 'b': config refers to 'fetsch.y', but there is no node 'fetsch' (did you mean "
        "'fetch'?)",
    ),
    case(
        workflow(node("fetch"), node("b", "config: {x: '{{ nothing.y }}'}")),
        "node 'b': config refers to 'nothing.y', but there is no node 'nothing'; there are: "
        "'input', 'execution', 'fetch', 'b'",
    ),
    case(
        of_a("config: {x: '{{ inputs.y }}'}"),
        "node 'a': config refers to 'inputs.y', but there is no node 'inputs' (did you mean "
        "'input'?)",
    ),
    case(
        of_a("config: {x: '{{ a.y }}'}"),
        "node 'a': config refers to 'a.y', its own output, which it does not have before it has "
        "run; refer to a parent",
    ),
    case(
        workflow(node("a"), node("b", "dependencies: []", "config: {x: '{{ a.y }}'}")),
        "node 'b': config refers to 'a.y', but 'a' is not upstream of 'b': add it to its "
        "dependencies",
    ),
    case(
        workflow(
            node("a", "dependencies: []", "config: {x: '{{ b.y }}'}"),
            node("b", "dependencies: [a]"),
        ),
        "node 'a': config refers to 'b.y', but 'b' runs after 'a', so it has no output yet; "
        "refer to an earlier node",
    ),
    case(
        of_a("config: {x: '{{ item.y }}'}"),
        "node 'a': config refers to 'item.y', but the node has no for_each; add one, or refer to "
        "another node",
    ),
    case(
        of_a("for_each: input.list", "condition: item.x"),
        "node 'a': condition refers to 'item.x', but an item exists only in config, "
        "concurrency_key, resource_tag, cache.key; refer to the list itself",
    ),
    case(
        of_a("for_each: item.list"),
        "node 'a': for_each refers to 'item.list', but an item exists only in config, "
        "concurrency_key, resource_tag, cache.key; refer to the list itself",
    ),
    case(
        of_a("config: {key: '{{ secrets }}'}"),
        "node 'a': config refers to 'secrets', but a secret has a name of lower-case letters, "
        "digits and '_', and nothing below it; write secrets.api_key",
    ),
    case(
        of_a("config: {key: '{{ secrets.API }}', other: '{{ secrets.api.key }}'}"),
        "node 'a': config refers to 'secrets.API', but a secret has a name of lower-case letters, "
        "digits and '_', and nothing below it; write secrets.api_key",
        "node 'a': config refers to 'secrets.api.key', but a secret has a name of lower-case "
        "letters, digits and '_', and nothing below it; write secrets.api_key",
    ),
    case(
        of_a("config: {seconds: '{{ secrets.long }}'}", handler="sleep"),
        "node 'a': config refers to 'secrets.long', but only workers know secrets, and the config "
        "of the handler 'sleep' is evaluated by the orchestrator; use it in the config of a node "
        "that a worker runs",
    ),
    case(
        of_a("cache: {key: '{{ secrets.x }}', ttl_seconds: 9}"),
        "node 'a': cache.key refers to 'secrets.x', but the store sees cache.key, and secrets are "
        "never stored; use another value",
    ),
    case(
        of_a("resource_tag: 'key-{{ secrets.x }}'"),
        "node 'a': resource_tag refers to 'secrets.x', but the store sees resource_tag, and "
        "secrets are never stored; use another value",
    ),
    case(
        of_a("resource_tag: 'user-{{ inputs.user }}'"),
        "node 'a': resource_tag refers to 'inputs.user', but there is no node 'inputs' (did you "
        "mean 'input'?)",
    ),
    case(
        of_a("condition: secrets.on"),
        "node 'a': condition refers to 'secrets.on', but only workers know secrets, and condition "
        "is evaluated by the orchestrator; use it in the config of a node that a worker runs",
    ),
    case(
        of_a("for_each: secrets.list"),
        "node 'a': for_each refers to 'secrets.list', but only workers know secrets, and for_each "
        "is evaluated by the orchestrator; use it in the config of a node that a worker runs",
    ),
    case(
        of_a("concurrency_key: '{{ secrets.x }}'"),
        "node 'a': concurrency_key refers to 'secrets.x', but only workers know secrets, and "
        "concurrency_key is evaluated by the orchestrator; use it in the config of a node that "
        "a worker runs",
    ),
    case(
        of_a("config: {x: '{{ execution.idd }}'}"),
        "node 'a': config refers to 'execution.idd', but execution has no 'idd' (did you mean "
        "'id'?); it has: id, workflow, version, started_at, labels",
    ),
    case(
        of_a("config: {x: '{{ input.b'}"),
        "node 'a': config.x: {{ input.b: '{{' is never closed by '}}'; for these two characters "
        "as text write {{ '{{' }}",
    ),
    case(
        of_a("config: {x: ['{% if a %}']}"),
        "node 'a': config.x[0]: {% if a %}: statements ('{%') are not part of templates, only {{ "
        "… }} is; for these two characters as text write {{ '{%' }}",
    ),
    case(
        of_a("config: {x: '{{ 1 + 2 }}'}"),
        "node 'a': config.x: {{ 1 + 2 }}: arithmetic ('+') is not part of templates; compute it "
        "in a node and refer to its result",
    ),
    case(
        of_a("config: {x: '{{ nodes }}'}"),
        "node 'a': config.x: {{ nodes }}: 'nodes' must be followed by the id of a node: "
        "nodes['my-node']",
    ),
    case(
        of_a("config: {x: \"{{ nodes['input'].x }}\"}"),
        "node 'a': config refers to 'nodes['input'].x', but there is no node 'input'; there are: "
        "'a'",
    ),
    case(
        workflow(node("x-y"), node("b", "config: {x: '{{ x-y.z }}'}")),
        "node 'b': config.x: {{ x-y.z }}: the id 'x-y' is not a plain name; write nodes['x-y']",
    ),
    case(
        workflow(node("x.y"), node("b", "config: {x: '{{ x.y.z }}'}")),
        "node 'b': config refers to 'x.y.z', but there is no node 'x'; the id 'x.y' is not a "
        "plain name; write nodes['x.y']",
    ),
    case(
        workflow(node("x-y"), node("b", "config: {x: \"{{ nodes['x-z'].q }}\"}")),
        "node 'b': config refers to 'nodes['x-z'].q', but there is no node 'x-z' (did you mean "
        "'x-y'?)",
    ),
    case(
        of_a("condition: 'input.x >'"),
        "node 'a': condition: input.x >: unexpected 'end of template'; expected an expression "
        "such as fetch.result[0].name",
    ),
    case(
        of_a("condition: 'null == input.x'"),
        "node 'a': condition refers to 'null', but there is no node 'null'; write none for "
        "JSON's null",
    ),
    case(of_a("for_each: '[input.x'"), "node 'a': for_each: [input.x: '[' is never closed"),
    case(
        of_a("concurrency_key: '{{ zz.q }}'"),
        "node 'a': concurrency_key refers to 'zz.q', but there is no node 'zz'; there are: "
        "'input', 'execution', 'a'",
    ),
    case(
        head("output: '{{ b.x }}'"),
        "output refers to 'b.x', but there is no node 'b'; there are: 'input', 'execution', 'a'",
    ),
    case(
        head("output: {x: '{{ item }}', y: '{{ secrets.z }}'}"),
        "output refers to 'item', which exists only inside a node with for_each; refer to that "
        "node",
        "output refers to 'secrets.z', but an output is stored, and secrets are never "
        "stored; leave the secret out",
    ),
    case(
        head("output: '{{ a.x'"),
        "output: {{ a.x: '{{' is never closed by '}}'; for these two characters as text write {{ "
        "'{{' }}",
    ),
]
