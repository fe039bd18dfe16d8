"""Bytes <-> values. Pure: no folders, no threads."""
