"""Runners: where the plan's work is done."""
