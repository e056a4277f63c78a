"""The virtual-time runtime: every node in one process, on a loop whose clock jumps.

Reading order:
1. `loop` has the run's clock, and `loop_timer` a timer of it. `clock` is a node's view of the
   clock.
2. `network` has the links between nodes. `host` has the clocks and timers of one incarnation (one
   life of a node); `cluster.host.base_host` has everything else of a Host.
3. `lives` has the nodes over all their incarnations. `starts` draws the times of their starts.
4. `checks` has the invariants between nodes, and the checks of answers, logs and rows.
5. `runtime` puts all together. `tripwires` guards a run against real clocks and randomness.

The same code, config, plan and seed give the same trace, byte for byte. No module here may read a
real clock, draw from an unseeded generator, or iterate over a set.
"""
