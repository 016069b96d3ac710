"""What the templates of a workflow name: each must be something that exists when it is read."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TypeGuard

from runnel.core.ids import NodeId
from runnel.core.templates.errors import TemplateSyntaxError
from runnel.core.templates.nodes import RESERVED, Reference
from runnel.core.templates.template import Expression, Tree, compile_expression, compile_tree
from runnel.core.validation.structure import Structure, not_upstream
from runnel.core.values import Json
from runnel.core.wording import COMPARED_NAMES, did_you_mean, name_hint, quoted, shorten
from runnel.core.workflow import CORE_HANDLERS, Node, Workflow

EXECUTION_KEYS = ("id", "workflow", "version", "started_at", "labels")
# Where an item exists: a condition and the list itself are evaluated before there are items.
ITEM_FIELDS = ("config", "concurrency_key", "cache.key")

_PLAIN_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(r"[a-z_][a-z0-9_]*")

Compiled = Tree | Expression


def compiled_fields(node: Node) -> Iterator[tuple[str, Compiled | TemplateSyntaxError]]:
    """Every field that may hold templates, compiled, or why that can't be done."""
    if node.config:
        yield "config", _tree(node.config, "config")
    if _is_given(node.condition):
        yield "condition", _expression(node.condition, "condition")
    if _is_given(node.for_each):
        yield "for_each", _expression(node.for_each, "for_each")
    if _is_given(node.concurrency_key):
        yield "concurrency_key", _tree(node.concurrency_key, "concurrency_key")
    if node.cache is not None and _is_given(node.cache.key):
        yield "cache.key", _tree(node.cache.key, "cache.key")


def template_problems(structure: Structure, workflow: Workflow) -> Iterator[str]:
    check = _ReferenceCheck(structure)
    for at, node in enumerate(workflow.nodes):
        for field, compiled in compiled_fields(node):
            for problem in check.node_field(at, field, compiled):
                yield f"node {quoted(node.id)}: {problem}"
    yield from check.output(_tree(workflow.output, "output"))
    yield from check.distant()


def _is_given(value: str | None) -> TypeGuard[str]:
    """What is empty, or no text at all, is refused as a value, not as a template."""
    return isinstance(value, str) and bool(value.strip())


def _tree(value: Json, where: str) -> Compiled | TemplateSyntaxError:
    try:
        return compile_tree(value, where=where)
    except TemplateSyntaxError as error:
        return error


def _expression(source: str, where: str) -> Compiled | TemplateSyntaxError:
    try:
        return compile_expression(source, where=where)
    except TemplateSyntaxError as error:
        return error


class _ReferenceCheck:
    """References to nodes further away than the parents are gathered, and judged together."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._distant: dict[tuple[int, int], tuple[str, Reference]] = {}
        self._parents_of = -1
        self._parents: frozenset[int] = frozenset()

    def node_field(
        self, at: int, field: str, compiled: Compiled | TemplateSyntaxError
    ) -> Iterator[str]:
        if isinstance(compiled, TemplateSyntaxError):
            yield self._syntax(compiled)
            return
        for reference in sorted(compiled.references, key=str):
            problem = _reserved(reference) or self._secret(at, field, reference)
            problem = problem or self._item(at, field, reference)
            problem = problem or self._node(at, field, reference)
            if problem:
                yield f"{field} refers to {quoted(str(reference))}, {problem}"

    def output(self, compiled: Compiled | TemplateSyntaxError) -> Iterator[str]:
        """The workflow's own result: made when all has settled, so any node may be in it."""
        if isinstance(compiled, TemplateSyntaxError):
            yield self._syntax(compiled)
            return
        for reference in sorted(compiled.references, key=str):
            problem = _reserved(reference) or self._unknown(reference)
            if _is_secret(reference):
                problem = "but a result is stored, and secrets never are; leave it out"
            elif reference.root == "item":
                problem = "which exists only inside a node with for_each; refer to that node"
            if problem:
                yield f"output refers to {quoted(str(reference))}, {problem}"

    def distant(self) -> Iterator[str]:
        """To be asked for last: one sentence for each node that names another it can't see."""
        missing = sorted(not_upstream(self._structure, self._distant))
        swapped = [(target, at) for at, target in missing]
        before = set(swapped).difference(not_upstream(self._structure, swapped))
        for at, target in missing:
            field, reference = self._distant[at, target]
            node, other = quoted(self._structure.id(at)), quoted(self._structure.id(target))
            told = f"node {node}: {field} refers to {quoted(str(reference))}, but {other}"
            if (target, at) in before:
                yield f"{told} runs after {node}, so it has no output yet; refer to an earlier node"
            else:
                yield f"{told} is not upstream of {node}: add it to its dependencies"

    def _secret(self, at: int, field: str, reference: Reference) -> str | None:
        if not _is_secret(reference):
            return None
        handler = self._structure.nodes[at].handler
        if field == "cache.key":
            return "but a cache key is stored, and secrets never are; name something else"
        if field != "config" or handler in CORE_HANDLERS:
            what = field if field != "config" else f"the config of the handler '{handler}'"
            return (
                f"but only workers know secrets, and {what} is evaluated by the orchestrator; "
                "use it in the config of a node that calls something"
            )
        if len(reference.path) != 1 or not _SECRET_NAME.fullmatch(str(reference.path[0])):
            return (
                "but a secret has a name of lower-case letters, digits and '_', and nothing "
                "below it; write secrets.api_key"
            )
        return None

    def _item(self, at: int, field: str, reference: Reference) -> str | None:
        if reference.via_nodes or reference.root != "item":
            return None
        if field not in ITEM_FIELDS:
            return f"but an item exists only in {', '.join(ITEM_FIELDS)}; refer to the list itself"
        if self._structure.nodes[at].for_each is None:
            return "but the node has no for_each; add one, or refer to another node"
        return None

    def _node(self, at: int, field: str, reference: Reference) -> str | None:
        target = self._structure.index.get(NodeId(reference.root))
        if target is None:
            return self._unknown(reference)
        if target == at:
            return "its own output, which it does not have before it has run; refer to a parent"
        if at != self._parents_of:
            self._parents_of, self._parents = at, frozenset(self._structure.parents[at])
        if target not in self._parents:
            self._distant.setdefault((at, target), (field, reference))
        return None

    def _unknown(self, reference: Reference) -> str | None:
        root = reference.root
        if root in self._structure.index or (root in RESERVED and not reference.via_nodes):
            return None
        if root == "null":
            return "but there is no node 'null'; write none for JSON's null"
        odd = self._odd_id_in(str(reference))
        if odd is not None:
            return f"but there is no node {quoted(root)}; {_by_subscript(odd)}"
        values = () if reference.via_nodes else ("input", "execution")
        hint = name_hint(root, (*values, *self._structure.index))
        return f"but there is no node {quoted(root)}{hint}"

    def _syntax(self, error: TemplateSyntaxError) -> str:
        odd = self._odd_id_in(error.template or "")
        if odd is None:
            return str(error)
        return f"{error.where}: {shorten(error.template or '')}: {_by_subscript(odd)}"

    def _odd_id_in(self, text: str) -> str | None:
        """An id that no plain name can be, written as if it were one."""
        for node_id in islice(self._structure.index, COMPARED_NAMES):
            if (
                node_id in text
                and not _PLAIN_ID.fullmatch(node_id)
                and _stands_alone(node_id, text)
            ):
                return node_id
        return None


def _stands_alone(node_id: str, text: str) -> bool:
    """Neither quoted nor a part of a longer word; an id without a letter could be any number."""
    has_letter = any(character.isalpha() for character in node_id)
    return has_letter and bool(re.search(rf"(?<![\w'\"]){re.escape(node_id)}(?![\w'\"])", text))


def _by_subscript(node_id: str) -> str:
    quote = '"' if "'" in node_id else "'"
    return f"the id {quoted(node_id)} is not a plain name; write nodes[{quote}{node_id}{quote}]"


def _is_secret(reference: Reference) -> bool:
    return reference.root == "secrets" and not reference.via_nodes


def _reserved(reference: Reference) -> str | None:
    if reference.via_nodes or reference.root != "execution":
        return None
    if not reference.path or reference.path[0] in EXECUTION_KEYS:
        return None
    wanted = str(reference.path[0])
    close = did_you_mean(wanted, EXECUTION_KEYS)
    return f"but execution has no {quoted(wanted)}{close}; it has: {', '.join(EXECUTION_KEYS)}"
