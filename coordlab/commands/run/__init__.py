"""`run`: plays an experiment once, or with several seeds.

Reading order: `command` (options, and one run), `play` (plays a run into its directory),
`conclusion` (verdict, tables and report after it). For several seeds: `seeds` (the whole command),
`seed_worker` (one seed in a worker process), `seed_runs` (results of all seeds), `seeds_view`
(their output on a terminal).
"""
