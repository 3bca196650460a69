"""The registry of integer header ids, which is not a schema registry: blocks, entries, rules, stores.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.core.lazy import refuse_link
from headerware.registry.differences import Difference, diff
from headerware.registry.names import Names, default_name_of, default_names, use_registry
from headerware.registry.registry import (
    Problem,
    Registry,
    built_in,
    problems,
    with_built_in,
    without_built_in,
)
from headerware.registry.values import Allocate, Block, Change, Encoding, Entry, Register, Retire

__all__ = [
    "Allocate",
    "Block",
    "Change",
    "Difference",
    "Encoding",
    "Entry",
    "Names",
    "Problem",
    "Register",
    "Registry",
    "Retire",
    "built_in",
    "default_name_of",
    "default_names",
    "diff",
    "problems",
    "use_registry",
    "with_built_in",
    "without_built_in",
]

refuse_link(__name__, "Registry")
