"""Link faults: rules about frames between nodes, and what carries them out at each host.

Reading order: `rules` (the data), `decisions` (one rule on one frame), `gate` (held, late and
dropped frames at one host), `reset` (connections that end at both sides).
"""
