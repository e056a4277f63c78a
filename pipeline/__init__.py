"""Spark over finished traces: from events to tables. It explains a run and never decides about it.

Public: `java.find_java`; `tables.analyze(run_dirs, master=...)`, which writes `<run>/tables/*` and
returns `figures.RunSummary`s. It knows of the lab only the protocol. `java` and `figures` do not
import Spark, all others do.

Reading order: `events` (run directories to rows), `runs`, `groups`, `faults`,
`coordinator_tenures`, `broker_phases`, `failovers` (a fault as each group meets it), `exchanges`,
`client_phases`, `gaps`, `availability`, `rebalances` (one module a transform), `tables` (in what
order, and where to), then `summary` and `figures`; `session` and `java` stand beside.
"""
