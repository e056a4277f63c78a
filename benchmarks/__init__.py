"""Benchmarks: each measures a figure and a baseline in the same run, and prints their ratio.

For example, "the event loop runs 400,000 events a second, a bare loop 600,000: ratio 0.67". The
ratio is nearly the same on another machine, and while other programs run. An absolute figure is
not.

Reading order: `measurement` (what each benchmark returns), `profiles`, `players` (processes that
run the code of another checkout); `virtual_loop`, `virtual_seconds`, `coordinator_core`,
`ray_link`, `exploration`, `compiled`, `search_cost`, `invariants_cost`, `large_groups`, `report`,
`shrinking`, `effort`, `many_runs`, `thousand_runs`, `wire` (one benchmark each); `soak` (long
tests), `cluster` (runs on machines that go away), `recorded_page` (pages with results),
`planted_bugs` and `sight` (how well the checkers find bugs).
"""
