"""Link faults: rules about frames between nodes, and the gates that apply them at each host.

Reading order: `rules` (the data), `decisions` (the effect of the rules on one frame), `gate`
(holds, delays and drops frames at one host), `reset` (ends connections at both sides).
"""
