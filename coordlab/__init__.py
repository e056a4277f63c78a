"""The command line, which connects all other packages.

Reading order: `cli` (the list of commands), `program` (the program's name, exit codes), `options`
and `parameters` (options and types that several commands share), `standing_options` (options of the
commands for a standing cluster), `commands` (one module or folder per command), `views` (output
that several commands share) and `console`; `analysis` (Spark, pages), `report_facts` and
`settings_facts` (facts for the pages of a run), `seed_names`, `junit`, `schedules`, `signals`,
`output` (streams whose reader is gone), `errors` (texts and exit codes of errors); `own_packages`
(a check before any import). The import of this package also makes Python use the compiled modules,
if `make fast` has built them.
"""

from coordlab.own_packages import require_own_packages

require_own_packages()

# Imported only now: without the check above, `cluster` could be a package of another distribution.
from cluster.compiled import use_compiled  # noqa: E402

use_compiled()
