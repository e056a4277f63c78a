"""The virtual-time runtime: every node in one process, on a loop whose clock jumps.

Reading order: `clock` (a node's view of time), `network` (links and refusals), `host` (one
incarnation, and what a crash, a pause and link rules do to it), `backlog` (what waits for a stopped
one), `lives` (the nodes, from one incarnation to the next), `runtime` (what an experiment sees).
Same code, config, plan and seed give the same trace, byte for byte. Nothing here may read a real
clock, draw from an unseeded generator, or iterate over a set.
"""
