"""Traces as files: written by each incarnation, followed while a run goes on, merged at its end.

Reading order: `files`, `tail`, `digest`, `parquet`, `salvage` (runs whose driver was killed).
"""
