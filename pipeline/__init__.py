"""Spark over finished traces: from events to tables. It explains a run and never decides about it.

Public: `java.find_java`; `tables.analyze(run_dirs, master=...)`, which writes `<run>/tables/*` and
returns `figures.RunSummary`s. It knows of the lab only the protocol. `java`, `figures` and
`outcomes` do not import Spark, all others do.

Reading order: `events` (run directories to rows), `runs`, `groups`, `members` (names behind member
ids), `faults`, `lives` (deaths, pauses, cuts), `coordinator_tenures`, `broker_phases`,
`tenure_overlaps`, `failovers` (a fault as each group meets it), `exchanges`, `client_phases`,
`gaps`, `availability`, `rebalances`, `ownership`, `repeats` (records processed again),
`ownership_overlaps`, `processing`, `commits` (one module a transform), `tables` (in what order, and
where to), then `summary` and `figures` (phases), `outcome_summary` and `outcomes` (all else);
`session` and `java` stand beside.
"""
