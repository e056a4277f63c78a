"""Semantic rules: settings that must fit each other, and faults that must fit the cluster.

Reading order: `semantic_checks`, then `clients`, `cluster`, `groups`, `faults`; `all_rules`.
"""
