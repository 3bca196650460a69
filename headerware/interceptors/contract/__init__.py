"""Contract: an AsyncAPI document says what the records of a topic must be (spec/contract.md).

``document`` reads the document, ``schemas`` compiles its JSON Schemas with bounds, ``judge`` finds the rules
that a record breaks, and ``interceptor`` has the options and both directions.
"""

from headerware.interceptors.contract.interceptor import Contract, ContractError, decode_broken_rules

__all__ = ["Contract", "ContractError", "decode_broken_rules"]
