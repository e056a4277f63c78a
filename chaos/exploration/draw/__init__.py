"""The draw of a schedule from a seed: sizes, settings and faults, each with its own random stream.

Reading order: `choices` (sizes and settings), `timeouts`, `fault_draw` (one fault), `patterns`
(combinations of faults), `close_patterns` (combinations within one moment), `zookeeper_patterns`
(combinations for groups on ZooKeeper), `response_losses`, `losses` (nodes that never restart),
`operations` (rollouts and scalings), `drawn_faults` (all faults of a seed), `draw` (the
experiment).
"""
