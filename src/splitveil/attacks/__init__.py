"""Splitveil."""
