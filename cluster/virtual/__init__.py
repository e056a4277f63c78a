"""The virtual-time runtime: every node in one process, on a loop whose clock jumps.

Reading order: `loop` (the clock), `loop_timer`, `clock` (a node's view of it), `network` (links and
refusals), `host` (an incarnation's clocks and timers; `cluster.host.base_host` has the rest),
`lives` (the nodes, from one incarnation to the next), `starts` (what of a beginning is chance),
`runtime`, `tripwires`. Same code, config, plan and seed give the same trace, byte for byte. Nothing
here may read a real clock, draw from an unseeded generator, or iterate over a set.
"""
