"""Upgrade, evaluation, plan and migration as one HTML file that needs nothing but itself."""

from crossfade.report.page import write_report

__all__ = ["write_report"]
