"""Semantic rules: settings that must fit each other, and faults that must fit the cluster.

Reading order: `semantic_checks`, `limits` (tables of `A <= B because`), then the rules that are
code: `clients`, `cluster`, `groups`, `faults`; `all_rules`.
"""
