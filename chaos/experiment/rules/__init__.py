"""Semantic rules: settings that must fit each other, and faults that must fit the cluster.

Reading order: `semantic_checks` (functions that make problems); `limits` (simple rules, such as
"this setting must be less than that setting", in a table); `clients`, `cluster`, `groups` and
`faults` (rules that need code); `all_rules`.
"""
