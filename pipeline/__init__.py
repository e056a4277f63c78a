"""Spark over finished traces: from events to tables. It explains a run and never decides about it.

Public: `java.find_java`; `tables.analyze(run_dirs, master=...)`, which writes `<run>/tables/*` and
returns `figures.RunSummary`s; `summary_file`, which reads them back and says whether a run's tables
are current. It knows of the lab only the protocol. `java`, `figures`, `outcomes`, `story`,
`summary_file`, `comparison`, `rebalance_reasons` and `report` do not import Spark, all others do.

Reading order: `events` and `run_documents` (run directories to rows), `runs`, `groups`, `members`
(names behind member ids), `faults`, `lives` (deaths, pauses, cuts), `group_states`,
`coordinator_tenures`, `broker_phases`, `tenure_overlaps`, `failovers` (a fault as each group meets
it), `exchanges`, `client_phases`, `gaps`, `availability`, `figure_table`, `rebalances`, `messages`,
`ownership`, `repeats` (records processed again), `ownership_overlaps`, `processing`, `commits`,
`metrics`, `verdicts` (one module a transform). How they are computed: `step`, `table_list` (what
from what), `table_graph` (in what order, several at once), `table_store` (where to), `tables` (all
of it). Then `summary` and `figures` (phases), `outcome_summary` and `outcomes` (all else),
`summary_file`; `session` and `java` stand beside, and `report` after all.
"""
