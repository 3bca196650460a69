"""Audit: compare what producers sent with what consumer groups read, by the reports of both."""

from headerware.ops.audit.accounts import Account, account_usage, decode_account
from headerware.ops.audit.compare import Comparison, Reconciled, compare
from headerware.ops.audit.reports import Reports, audit_usage, read_reports

__all__ = [
    "Account",
    "Comparison",
    "Reconciled",
    "Reports",
    "account_usage",
    "audit_usage",
    "compare",
    "decode_account",
    "read_reports",
]
