"""Spark over finished traces: from events to tables.

It explains a run and never decides about it. It knows of the lab only the trace schema.
"""
