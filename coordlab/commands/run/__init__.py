"""`run`: an experiment once, or with several seeds.

Reading order: `command` (options, one run), `play` (a run into its directory), `conclusion` (what
follows its end); of several seeds
`seeds` (the work), `seed_worker` (what a worker does), `seed_runs` (what they come to together) and
`seeds_view` (on a terminal).
"""
