"""Benchmarks: each prints a ratio to a baseline measured in the same run.

Reading order: `measurement` (what each returns), `profiles`, `players` (processes of another
checkout); `virtual_loop`, `virtual_seconds`, `coordinator_core`, `ray_link`, `exploration`,
`compiled`, `search_cost`, `large_groups`, `report`, `shrinking`, `effort`, `many_runs`,
`thousand_runs`, `wire` (one benchmark each); `soak`, `cluster` (runs on machines that go away),
`recorded_page`, `planted_bugs`, `sight`.
"""
