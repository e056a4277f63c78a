"""The search for violations: it draws thousands of experiments at random, and runs each of them.

`coordlab explore` takes a space file, which says what may vary. Each seed draws an experiment from
the space, with a plan of faults. The experiment is played in virtual time (the run's own simulated
clock). If a checker reports a violation in the run (a finding), the search writes the experiment to
an ordinary experiment file. Users can replay this file, shrink it to its essence, read it, and run
it on Ray.

Reading order: `space_definition`, `space_semantics`, `space`; `draw` (seeds become schedules),
`play` (one run), `cpu_limit`, `marks`, `effort`, `signature` (equality of findings),
`required_work`, `gc_pause`; `guided` (plans that are kept and mutated); `batches`,
`running_totals`, `store`, `search`, `results`; `finding_files`, `replay_file`, `nearest_passing`;
`shrink`.
"""
