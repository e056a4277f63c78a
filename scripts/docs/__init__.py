"""Makes the pages in docs/generated from the code. A test compares the pages with the code.

Reading order: `reference` (writes all pages), `experiment_reference`, `conformance_page`,
`trace_page`, `zookeeper_rules_page`, `markdown`.
"""
