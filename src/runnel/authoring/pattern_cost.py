"""Estimates how long a regular expression may take, before it is applied to a text of a user.

Python's `re` tries every way in which a pattern can match. `(a+)+$` matches a text of `a` in
exponentially many ways, and `a*a*$` in quadratically many. A match also holds the interpreter lock,
so no thread can limit it.
"""

import re
import re._constants as ops  # type: ignore[import-not-found]  # typeshed leaves it out
import re._parser as parser  # type: ignore[import-not-found]  # typeshed leaves it out
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

CHARS_MAX = {0: None, 1: None, 2: 4_000, 3: 400, 4: 120, 5: 60}
"""The longest text by degree: the time grows with this power of the length. About 0.2 s each."""
EXPONENTIAL_CHARS_MAX = 20

# A repeat with at least so many repetitions counts as endless.
_ENDLESS = 10
_COPIES_MAX = 3
_POSITIONS_MAX = 200
_STEPS_MAX = 200_000
_SAMPLES = "\t\n -09AZ_az~\x85\xa0\xe9\xff\u03a9\u0660\u4e2d"
_REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)
_ASSERTIONS = (ops.ASSERT, ops.ASSERT_NOT)
_CATEGORIES = {
    ops.CATEGORY_DIGIT: (r"\d", True),
    ops.CATEGORY_NOT_DIGIT: (r"\d", False),
    ops.CATEGORY_SPACE: (r"\s", True),
    ops.CATEGORY_NOT_SPACE: (r"\s", False),
    ops.CATEGORY_WORD: (r"\w", True),
    ops.CATEGORY_NOT_WORD: (r"\w", False),
}


class PatternCost(NamedTuple):
    """`problem` says why a pattern is too slow for any text. `chars_max` None means no limit."""

    chars_max: int | None
    problem: str | None


@lru_cache(maxsize=1024)
def estimate_cost(pattern: str) -> PatternCost:
    """Returns the cost of a valid pattern in a search."""
    try:
        tree = parser.parse(pattern)
        alphabet = _Alphabet(tree)
        loops = list(_iterate_loops(tree))
        is_exponential = any(_Automaton(alphabet, loop).is_ambiguous() for loop in loops)
        degree = max(_estimate_degree(alphabet, part) for part in [tree, *_list_assertions(tree)])
    except (_TooComplexError, RecursionError):
        return PatternCost(EXPONENTIAL_CHARS_MAX, "it has too many parts inside of a repeat")
    if is_exponential:
        problem = "a repeat can match the same text in several ways, which takes exponential time"
        return PatternCost(EXPONENTIAL_CHARS_MAX, problem)
    if degree not in CHARS_MAX:
        problem = "too many of its repeats can match the same text"
        return PatternCost(EXPONENTIAL_CHARS_MAX, problem)
    return PatternCost(CHARS_MAX[degree], None)


class _TooComplexError(Exception):
    """A pattern has too many parts to be analysed."""


def _iterate_nodes(tree: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields every node of a parsed pattern."""
    for op, value in tree:
        yield op, value
        for part in _list_parts(op, value):
            yield from _iterate_nodes(part)


def _list_parts(op: Any, value: Any) -> Sequence[Any]:
    if op in _REPEATS or op is ops.SUBPATTERN:
        return [value[-1]]
    if op is ops.BRANCH:
        return list(value[1])
    if op is ops.ATOMIC_GROUP:
        return [value]
    if op in _ASSERTIONS:
        return [value[1]]
    if op is ops.GROUPREF_EXISTS:
        return [part for part in value[1:] if part is not None]
    return []


def _is_loop(op: Any, value: Any) -> bool:
    return op in _REPEATS and value[1] >= _ENDLESS and value[0] != value[1]


def _iterate_loops(tree: Iterable[Any]) -> Iterator[Any]:
    """Yields the outermost loops, each as a tree."""
    for op, value in tree:
        if _is_loop(op, value) or (op in _REPEATS and value[1] >= _ENDLESS):
            yield [(op, value)]
            continue
        for part in _list_parts(op, value):
            yield from _iterate_loops(part)


def _list_assertions(tree: Iterable[Any]) -> list[Any]:
    return [value[1] for op, value in _iterate_nodes(tree) if op in _ASSERTIONS]


class _Alphabet:
    """Represents each set of characters by the samples that it contains."""

    def __init__(self, tree: Any) -> None:
        self._ignores_case = bool(tree.state.flags & re.IGNORECASE)
        codes = {ord(char) for char in _SAMPLES}
        for op, value in _iterate_nodes(tree):
            for item_op, item in value if op is ops.IN else [(op, value)]:
                if item_op in (ops.LITERAL, ops.NOT_LITERAL):
                    codes |= {item - 1, item, item + 1}
                elif item_op is ops.RANGE:
                    codes |= {item[0] - 1, item[0], item[1], item[1] + 1}
        self.all = frozenset(chr(code) for code in codes if 0 <= code <= sys.maxunicode)

    def match(self, op: Any, value: Any) -> frozenset[str]:
        """Returns the samples that a node for one character matches."""
        if op is ops.IN:
            is_negated = value[0][0] is ops.NEGATE
            items = value[1:] if is_negated else value
            matched = frozenset().union(*(self.match(*item) for item in items))
            return self.all - matched if is_negated else matched
        if op is ops.NOT_LITERAL:
            return self.all - self.match(ops.LITERAL, value)
        if op is ops.LITERAL or op is ops.RANGE:
            low, high = value if op is ops.RANGE else (value, value)
            return frozenset(char for char in self.all if self._is_between(char, low, high))
        if op is ops.CATEGORY:
            text, is_inside = _CATEGORIES[value]
            return frozenset(c for c in self.all if bool(re.match(text, c)) is is_inside)
        return self.all

    def _is_between(self, char: str, low: int, high: int) -> bool:
        forms = {char, char.lower(), char.upper()} if self._ignores_case else {char}
        return any(len(form) == 1 and low <= ord(form) <= high for form in forms)


class _Part(NamedTuple):
    is_nullable: bool
    first: list[int]
    last: list[int]


class _Automaton:
    """The positions of one loop, and how often each position can follow another one."""

    def __init__(self, alphabet: _Alphabet, loop: Any) -> None:
        self._alphabet = alphabet
        self._samples: list[frozenset[str]] = []
        self._edges: Counter[tuple[int, int]] = Counter()
        self._build_sequence(loop)
        self._next: dict[int, list[int]] = {}
        for before, after in self._edges:
            self._next.setdefault(before, []).append(after)
        self._steps_left = _STEPS_MAX

    def is_ambiguous(self) -> bool:
        """Returns True if the loop can return to a position by two ways for the same text."""
        twice = (edge for edge, count in self._edges.items() if count > 1)
        if any(self._returns(*edge) for edge in twice):
            return True
        return any(self._has_second_way(position) for position in range(len(self._samples)))

    def _returns(self, before: int, after: int) -> bool:
        return before == after or (before, before) in self._follow([(after, after)])

    def _has_second_way(self, position: int) -> bool:
        start = position, position
        parted = {pair for pair in self._follow([start]) if pair[0] != pair[1]}
        return start in self._follow(parted)

    def _follow(self, pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Returns the pairs of positions that two ways for the same text can reach."""
        pending, seen = list(pairs), set[tuple[int, int]]()
        while pending:
            one, other = pending.pop()
            for next_one in self._next.get(one, ()):
                for next_other in self._next.get(other, ()):
                    self._steps_left -= 1
                    if self._steps_left < 0:
                        raise _TooComplexError
                    pair = min(next_one, next_other), max(next_one, next_other)
                    is_common = self._samples[next_one] & self._samples[next_other]
                    if is_common and pair not in seen:
                        seen.add(pair)
                        pending.append(pair)
        return seen

    def _build_sequence(self, nodes: Iterable[Any]) -> _Part:
        whole = _Part(True, [], [])
        for op, value in nodes:
            whole = self._join(whole, self._build_node(op, value))
        return whole

    def _join(self, left: _Part, right: _Part) -> _Part:
        self._connect(left.last, right.first)
        return _Part(
            left.is_nullable and right.is_nullable,
            left.first + (right.first if left.is_nullable else []),
            right.last + (left.last if right.is_nullable else []),
        )

    def _connect(self, last: Iterable[int], first: Sequence[int]) -> None:
        for before in last:
            for after in first:
                self._edges[before, after] += 1

    def _build_node(self, op: Any, value: Any) -> _Part:
        if op in _REPEATS:
            return self._build_repeat(*value)
        if op is ops.AT or op in _ASSERTIONS:
            return _Part(True, [], [])
        parts = _list_parts(op, value)
        if op is ops.BRANCH or op is ops.GROUPREF_EXISTS:
            built = [self._build_sequence(part) for part in parts]
            return _Part(
                any(part.is_nullable for part in built),
                [position for part in built for position in part.first],
                [position for part in built for position in part.last],
            )
        if parts:
            return self._build_sequence(parts[0])
        if len(self._samples) >= _POSITIONS_MAX:
            raise _TooComplexError
        self._samples.append(self._alphabet.match(op, value))
        position = len(self._samples) - 1
        return _Part(False, [position], [position])

    def _build_repeat(self, least: int, most: int, body: Any) -> _Part:
        if least != most and most >= _ENDLESS:
            built = self._build_sequence(body)
            self._connect(built.last, built.first)
            return built._replace(is_nullable=built.is_nullable or least == 0)
        whole = _Part(True, [], [])
        copies = min(most, _COPIES_MAX)
        for number in range(copies):
            built = self._build_sequence(body)
            is_optional = least != most and number >= least
            whole = self._join(whole, built._replace(is_nullable=built.is_nullable or is_optional))
        return whole


class _Element(NamedTuple):
    """A part of a pattern that is matched once, or any number of times.

    `entry` and `exit` are what a loop must match before it can begin and end a repetition.
    """

    is_loop: bool
    samples: frozenset[str]
    entry: Sequence["_Element"] = ()
    exit: Sequence["_Element"] = ()


def _estimate_degree(alphabet: _Alphabet, tree: Any) -> int:
    """Returns how many loops can share a text: the power with which the time grows."""
    elements = list(_iterate_elements(alphabet, tree, is_required=True))
    nodes = list(tree)
    is_anchored = bool(nodes) and nodes[0] in [
        (ops.AT, ops.AT_BEGINNING),
        (ops.AT, ops.AT_BEGINNING_STRING),
    ]
    if not is_anchored:
        elements.insert(0, _Element(True, alphabet.all))
    if len(elements) > _POSITIONS_MAX:
        elements = [element for element in elements if element.is_loop]
    degrees = [0] * len(elements)
    for index, element in enumerate(elements):
        if not element.is_loop:
            continue
        required: list[_Element] = []
        for before in range(index - 1, -1, -1):
            if not elements[before].is_loop:
                required.append(elements[before])
            elif _can_share(elements[before], element, required):
                degrees[index] = max(degrees[index], degrees[before])
        degrees[index] += 1
    return max(degrees, default=0)


def _can_share(before: _Element, after: _Element, required: Iterable[_Element]) -> bool:
    """Returns True if two loops can match a text that also contains all that is between them."""
    return bool(before.samples & after.samples) and all(
        element.samples & before.samples and element.samples & after.samples
        for element in (*before.exit, *required, *after.entry)
    )


def _build_loop_element(inner: list[_Element]) -> _Element:
    def is_required(element: _Element) -> bool:
        return not element.is_loop

    return _Element(
        True,
        frozenset().union(*(element.samples for element in inner)),
        entry=list(takewhile(is_required, inner)),
        exit=list(takewhile(is_required, reversed(inner))),
    )


def _iterate_elements(alphabet: _Alphabet, tree: Any, *, is_required: bool) -> Iterator[_Element]:
    for op, value in tree:
        if op is ops.AT or op in _ASSERTIONS:
            continue
        parts = _list_parts(op, value)
        if _is_loop(op, value):
            yield _build_loop_element(list(_iterate_elements(alphabet, parts[0], is_required=True)))
        elif op in _REPEATS:
            for _ in range(min(value[1], len(CHARS_MAX))):
                yield from _iterate_elements(
                    alphabet, parts[0], is_required=is_required and value[0] > 0
                )
        elif parts:
            is_only = is_required and len(parts) == 1
            for part in parts:
                yield from _iterate_elements(alphabet, part, is_required=is_only)
        elif is_required:
            yield _Element(False, alphabet.match(op, value))
