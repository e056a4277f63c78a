"""The search for violations: it draws thousands of experiments at random, and runs each of them.

`coordlab explore` takes a space file, which says what may vary. Each seed draws an experiment from
it, with a plan of faults, and plays it in virtual time. A checker may
report a violation in the run (a finding). The search then writes the experiment to an ordinary
experiment file. Users can replay this file, shrink it to its essence, read it, and run it on Ray.

Reading order: `space_definition`, `space_semantics`, `space`; `draw` (seeds become schedules),
`play` (one run), `cpu_limit`, `marks`, `effort`, `signature` (equality of findings),
`required_work`, `gc_pause`; `guided` (plans that are kept and mutated); `batches`,
`running_totals`, `store`, `search`, `results`; `finding_files`, `replay_file`, `nearest_passing`;
`shrink`.
"""
