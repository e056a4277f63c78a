"""The virtual-time runtime: every node in one process, on a loop whose clock jumps.

Reading order: `loop` (the clock), `clock` (a node's view of it), `network` (links and refusals),
`host` (one incarnation, and what a crash, a pause and link rules do to it), `backlog` (events that
wait for a stopped node), `lives` (the nodes, from one incarnation to the next), `runtime`,
`tripwires`. Same code, config, plan and seed give the same trace, byte for byte. Nothing here may
read a real clock, draw from an unseeded generator, or iterate over a set.
"""
