"""The JSON edge: what a user's payload is made of, as decoded from JSON."""

from typing import Any, TypeAlias

# None, bool, int, float, str, list of these, dict from str to these. Any, because a recursive
# alias makes every step into a payload a cast that checks nothing at run time.
Json: TypeAlias = Any
