"""From a seed to a schedule: sizes, settings and faults, each from a random stream of its own.

Reading order: `choices`, `timeouts`, `fault_draw` (one fault), `patterns` (faults that belong
together), `close_patterns` (those that fall into one moment), `zookeeper_patterns` (those of groups
on ZooKeeper), `response_losses`, `losses` (nodes that never come back), `operations` (rollouts and
scalings), `drawn_faults`, `draw`.
"""
