"""The virtual-time runtime: every node in one process, on a loop whose clock jumps.

Reading order: `loop` (the clock), `loop_timer`, `clock` (a node's view of the clock), `network`
(links and refusals), `host` (clocks and timers of one incarnation; `cluster.host.base_host` has the
rest), `lives` (the nodes, from one incarnation to the next), `starts` (random draws of when nodes
start), `sent_batches`, `created_topics`, `coordinator_checks` and `cleaning_checks` (parts of
`replica_checks`), `replica_checks` (invariants between nodes, and of answers and logs),
`controller_checks` (the controller's answers), `metrics_checks`, `runtime`, `tripwires`.

The same code, config, plan and seed give the same trace, byte for byte. No module here may read a
real clock, draw from an unseeded generator, or iterate over a set.
"""
