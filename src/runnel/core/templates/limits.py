"""How large a template, its parts and its results may be."""

SOURCE_BYTES_MAX = 64 * 1024
NODES_MAX = 500
DEPTH_MAX = 50
TREE_DEPTH_MAX = 100

# Jinja's parser takes about 15 stack frames a bracket: 25 leave most of Python's 1,000 free.
BRACKETS_MAX = 25
# `not not x`, `- - x` and `a if b else c if d else e` cost it one frame each.
CHAIN_MAX = 50

TEXT_BYTES_MAX = 1024 * 1024
ITEMS_MAX = 100_000
INTEGER_MAX = 2**63 - 1
DIGITS_MAX = 15

# All that one evaluation (of a whole tree) may build, so that many large texts are refused as well.
BUILT_BYTES_MAX = 16 * 1024 * 1024
ITEM_BYTES = 8

CACHED_SOURCES = 1024
