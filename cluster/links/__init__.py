"""Link faults: rules about frames between nodes, and the gates that apply them at each host.

Reading order: `rules` (the data), `decisions` (one rule on one frame), `gate` (held, delayed and
dropped frames at one host), `reset` (connections that end at both sides).
"""
