"""Checks the references in templates: each must name a value that exists when the template is
evaluated.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TypeGuard

from runnel.core.ids import NodeId
from runnel.core.message_text import (
    COMPARED_NAMES_MAX,
    quote_name,
    shorten,
    suggest_name,
    suggest_or_list_names,
)
from runnel.core.templates.errors import TemplateSyntaxError
from runnel.core.templates.nodes import RESERVED_NAMES, TemplateReference
from runnel.core.templates.template import (
    CompiledExpression,
    TemplateTree,
    compile_expression,
    compile_tree,
)
from runnel.core.validation.structure import DependencyGraph, find_not_upstream
from runnel.core.values import Json
from runnel.core.workflow import CORE_HANDLERS, Node, Workflow

EXECUTION_KEYS = ("id", "workflow", "version", "started_at", "labels")
# The fields that may refer to `item`. `condition` and `for_each` are evaluated before there are
# items.
ITEM_FIELDS = ("config", "concurrency_key", "resource_tag", "cache.key")

_PLAIN_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(r"[a-z_][a-z0-9_]*")

CompiledTemplate = TemplateTree | CompiledExpression


def compile_fields(node: Node) -> Iterator[tuple[str, CompiledTemplate | TemplateSyntaxError]]:
    """Yields the name of every field that may contain templates, with its compiled form or its
    syntax error.
    """
    if node.config:
        yield "config", _try_compile_tree(node.config, "config")
    if _is_given(node.condition):
        yield "condition", _try_compile_expression(node.condition, "condition")
    if _is_given(node.for_each):
        yield "for_each", _try_compile_expression(node.for_each, "for_each")
    if _is_given(node.concurrency_key):
        yield "concurrency_key", _try_compile_tree(node.concurrency_key, "concurrency_key")
    if _is_given(node.resource_tag):
        yield "resource_tag", _try_compile_tree(node.resource_tag, "resource_tag")
    if node.cache is not None and _is_given(node.cache.key):
        yield "cache.key", _try_compile_tree(node.cache.key, "cache.key")


def find_template_problems(structure: DependencyGraph, workflow: Workflow) -> Iterator[str]:
    checker = _ReferenceChecker(structure)
    for index, node in enumerate(workflow.nodes):
        for field, compiled in compile_fields(node):
            for problem in checker.check_node_field(index, field, compiled):
                yield f"node {quote_name(node.id)}: {problem}"
    yield from checker.check_output(_try_compile_tree(workflow.output, "output"))
    yield from checker.check_distant()


def _is_given(value: str | None) -> TypeGuard[str]:
    """Returns True if the value is a text that is not empty.

    The field checks report every other value.
    """
    return isinstance(value, str) and bool(value.strip())


def _try_compile_tree(value: Json, where: str) -> CompiledTemplate | TemplateSyntaxError:
    try:
        return compile_tree(value, where=where)
    except TemplateSyntaxError as error:
        return error


def _try_compile_expression(source: str, where: str) -> CompiledTemplate | TemplateSyntaxError:
    try:
        return compile_expression(source, where=where)
    except TemplateSyntaxError as error:
        return error


class _ReferenceChecker:
    """Checks the references of all fields.

    References to nodes above the parents are collected and checked together.
    """

    def __init__(self, structure: DependencyGraph) -> None:
        self._structure = structure
        self._distant: dict[tuple[int, int], tuple[str, TemplateReference]] = {}
        self._parents_of = -1
        self._parents: frozenset[int] = frozenset()

    def check_node_field(
        self, index: int, field: str, compiled: CompiledTemplate | TemplateSyntaxError
    ) -> Iterator[str]:
        if isinstance(compiled, TemplateSyntaxError):
            yield self._format_syntax_error(compiled)
            return
        for reference in sorted(compiled.references, key=str):
            problem = _find_execution_key_problem(reference) or self._check_secret(
                index, field, reference
            )
            problem = problem or self._check_item(index, field, reference)
            problem = problem or self._check_node(index, field, reference)
            if problem:
                yield f"{field} refers to {quote_name(str(reference))}, {problem}"

    def check_output(self, compiled: CompiledTemplate | TemplateSyntaxError) -> Iterator[str]:
        """Checks the workflow's output.

        The output is built when all nodes are settled, so it may refer to any node.
        """
        if isinstance(compiled, TemplateSyntaxError):
            yield self._format_syntax_error(compiled)
            return
        for reference in sorted(compiled.references, key=str):
            problem = _find_execution_key_problem(reference) or self._check_known(reference)
            if _is_secret(reference):
                problem = (
                    "but an output is stored, and secrets are never stored; leave the secret out"
                )
            elif reference.root == "item":
                problem = "which exists only inside a node with for_each; refer to that node"
            if problem:
                yield f"output refers to {quote_name(str(reference))}, {problem}"

    def check_distant(self) -> Iterator[str]:
        """Yields one problem for each collected reference to a node that is not upstream.

        Call `check_distant` after all other checks.
        """
        missing = sorted(find_not_upstream(self._structure, self._distant))
        swapped = [(target, index) for index, target in missing]
        before = set(swapped).difference(find_not_upstream(self._structure, swapped))
        for index, target in missing:
            field, reference = self._distant[index, target]
            node, other = (
                quote_name(self._structure.id(index)),
                quote_name(self._structure.id(target)),
            )
            head = f"node {node}: {field} refers to {quote_name(str(reference))}, but {other}"
            if (target, index) in before:
                yield f"{head} runs after {node}, so it has no output yet; refer to an earlier node"
            else:
                yield f"{head} is not upstream of {node}: add it to its dependencies"

    def _check_secret(self, index: int, field: str, reference: TemplateReference) -> str | None:
        if not _is_secret(reference):
            return None
        handler = self._structure.nodes[index].handler
        if field in ("cache.key", "resource_tag"):
            return f"but the store sees {field}, and secrets are never stored; use another value"
        if field != "config" or handler in CORE_HANDLERS:
            subject = field if field != "config" else f"the config of the handler '{handler}'"
            return (
                f"but only workers know secrets, and {subject} is evaluated by the orchestrator; "
                "use it in the config of a node that a worker runs"
            )
        if len(reference.path) != 1 or not _SECRET_NAME.fullmatch(str(reference.path[0])):
            return (
                "but a secret has a name of lower-case letters, digits and '_', and nothing "
                "below it; write secrets.api_key"
            )
        return None

    def _check_item(self, index: int, field: str, reference: TemplateReference) -> str | None:
        if reference.via_nodes or reference.root != "item":
            return None
        if field not in ITEM_FIELDS:
            return f"but an item exists only in {', '.join(ITEM_FIELDS)}; refer to the list itself"
        if self._structure.nodes[index].for_each is None:
            return "but the node has no for_each; add one, or refer to another node"
        return None

    def _check_node(self, index: int, field: str, reference: TemplateReference) -> str | None:
        target = self._structure.index.get(NodeId(reference.root))
        is_execution_value = reference.root in RESERVED_NAMES and not reference.via_nodes
        if target is None or is_execution_value:
            return self._check_known(reference)
        if target == index:
            return "its own output, which it does not have before it has run; refer to a parent"
        if index != self._parents_of:
            self._parents_of, self._parents = index, frozenset(self._structure.parents[index])
        if target not in self._parents:
            self._distant.setdefault((index, target), (field, reference))
        return None

    def _check_known(self, reference: TemplateReference) -> str | None:
        root = reference.root
        if root in self._structure.index or (root in RESERVED_NAMES and not reference.via_nodes):
            return None
        if root == "null":
            return "but there is no node 'null'; write none for JSON's null"
        unquoted_id = self._find_unquoted_id(str(reference))
        if unquoted_id is not None:
            return f"but there is no node {quote_name(root)}; {_suggest_subscript(unquoted_id)}"
        values = () if reference.via_nodes else ("input", "execution")
        hint = suggest_or_list_names(root, (*values, *self._structure.index))
        return f"but there is no node {quote_name(root)}{hint}"

    def _format_syntax_error(self, error: TemplateSyntaxError) -> str:
        unquoted_id = self._find_unquoted_id(error.template or "")
        if unquoted_id is None:
            return str(error)
        return f"{error.where}: {shorten(error.template or '')}: {_suggest_subscript(unquoted_id)}"

    def _find_unquoted_id(self, text: str) -> str | None:
        """Returns a node id that the text contains as a plain name although the id needs quotes, or
        None.
        """
        for node_id in islice(self._structure.index, COMPARED_NAMES_MAX):
            if (
                node_id in text
                and not _PLAIN_ID.fullmatch(node_id)
                and _is_standalone(node_id, text)
            ):
                return node_id
        return None


def _is_standalone(node_id: str, text: str) -> bool:
    """Returns True if the text contains the id neither quoted nor as a part of a longer word.

    Returns False for an id without a letter, because such an id could be a number.
    """
    has_letter = any(character.isalpha() for character in node_id)
    return has_letter and bool(re.search(rf"(?<![\w'\"]){re.escape(node_id)}(?![\w'\"])", text))


def _suggest_subscript(node_id: str) -> str:
    quote = '"' if "'" in node_id else "'"
    return f"the id {quote_name(node_id)} is not a plain name; write nodes[{quote}{node_id}{quote}]"


def _is_secret(reference: TemplateReference) -> bool:
    return reference.root == "secrets" and not reference.via_nodes


def _find_execution_key_problem(reference: TemplateReference) -> str | None:
    if reference.via_nodes or reference.root != "execution":
        return None
    if not reference.path or reference.path[0] in EXECUTION_KEYS:
        return None
    key = str(reference.path[0])
    close = suggest_name(key, EXECUTION_KEYS)
    return f"but execution has no {quote_name(key)}{close}; it has: {', '.join(EXECUTION_KEYS)}"
