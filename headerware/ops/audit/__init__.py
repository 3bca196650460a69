"""Audit: what producers sent, compared with what consumer groups read, by the reports of both ends."""

from headerware.ops.audit.compare import Comparison, Reconciled, compare
from headerware.ops.audit.reports import Reports, audit_usage, read_reports

__all__ = ["Comparison", "Reconciled", "Reports", "audit_usage", "compare", "read_reports"]
