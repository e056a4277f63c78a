"""The draw of an experiment from a seed: its sizes, its settings and its faults.

Each value is drawn from a random stream of its own.

Reading order: `choices` (sizes and settings), `timeouts`, `fault_draw` (one fault), `patterns`
(combinations of faults), `close_patterns` (combinations within one moment), `zookeeper_patterns`
(combinations for groups on ZooKeeper), `response_losses`, `losses` (nodes that never restart),
`operations` (rollouts and scalings), `drawn_faults` (all faults of a seed), `draw` (the
experiment).
"""
