"""The command line and the wiring of everything.

Reading order: `cli` (which commands there are), `program` (its name, exit codes), `options` and
`parameters` (what several of them take), `standing_options` (what those take that ask a cluster
which stays), `commands` (one module or one folder each), `views` (what several of them print) and
`console`; `analysis` (Spark, pages), `report_facts` and `settings_facts` (what a page is told of a
run), `seed_names`, `junit`, `schedules`, `signals`, `output` (streams that nobody reads), `errors`
(how a command ends); `own_packages` (a check before any import). Compiled modules, if any are
built, are found from here on.
"""

from coordlab.own_packages import require_own_packages

require_own_packages()

from cluster.compiled import use_compiled  # noqa: E402  # cluster may be another distribution's

use_compiled()
