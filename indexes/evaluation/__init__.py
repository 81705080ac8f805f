"""Measuring an index against questions whose answers are known."""
