"""The report: one HTML file that needs nothing else, neither network nor script."""

from headerware.ops.chargeback.report.writing import report_html, write_report

__all__ = ["report_html", "write_report"]
