"""The registry of integer header ids: blocks and their owners, entries, rules and stores."""

from headerware.core.lazy import refuse_link
from headerware.registry.built_in import built_in, with_built_in, without_built_in
from headerware.registry.changes import Allocate, Change, Register, Retire
from headerware.registry.differences import Difference, diff
from headerware.registry.entries import Block, Encoding, Entry
from headerware.registry.names import Names, default_name_of, default_names, use_registry
from headerware.registry.registry import Registry
from headerware.registry.rules import Problem, problems

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
