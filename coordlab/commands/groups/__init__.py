"""`groups`: what kafka-consumer-groups does, against a running cluster or a moment of a replay.

Reading order: `command`, `asked_cluster` (where a question goes), `questions` (calls of an
administrator), `facts` (the answers as data), `view`; for `--why` the modules `rebalance_log` and
`rebalance_view`.
"""
