"""Expressions over records in the Common Expression Language (CEL): compiled once, evaluated per record."""

from headerware.connect.expressions.compiled import VARIABLES, AbsentValueError, CompiledExpression, Result

__all__ = ["VARIABLES", "AbsentValueError", "CompiledExpression", "Result"]
