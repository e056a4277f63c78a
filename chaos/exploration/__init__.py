"""Search of fault schedules: seeds become experiments, runs in virtual time, findings.

A drawn schedule is an ordinary `Experiment` with an explicit plan (list of faults) and a seed (the
number that determines all random choices). A finding is a violation that a checker reports. The
schedule that shows it can be replayed, shrunk (made smaller), read by people, and run on Ray
without a change. To play a schedule means to run it once in virtual time (the run's own simulated
clock), without files.

Reading order: `space_definition`, `space_semantics`, `space`; `draw` (seeds become schedules),
`play` (one run), `cpu_limit`, `marks`, `effort`, `signature` (equality of findings),
`required_work`, `gc_pause`; `guided` (plans that are kept and mutated); `batches`,
`running_totals`, `store`, `search`, `results`; `finding_files`, `replay_file`, `nearest_passing`;
`shrink`.
"""
