"""Trace files: written by each incarnation, followed during a run, merged at its end.

Reading order: `files`, `tail`, `digest`, `parquet`, `salvage` (runs whose driver was killed).
"""
