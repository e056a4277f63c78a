"""The command line, which connects all other packages.

Reading order: `cli` (the list of commands), `program` (the program's name, exit codes), `options`
and `parameters` (options and types that several commands share), `standing_options` (options of the
commands that ask a running cluster), `commands` (one module or folder per command), `views`
(output that several commands share) and `console`; `analysis` (Spark, pages), `report_facts` and
`settings_facts` (facts for the pages of a run), `seed_names`, `junit`, `schedules`, `signals`,
`output` (streams whose reader is gone), `errors` (texts and exit codes of errors); `own_packages`
(a check before any import).

`make fast` compiles some modules, so that runs are faster. When this package is imported, it makes
Python use the compiled modules.
"""

from coordlab.own_packages import require_own_packages

require_own_packages()

# Imported only after the check: `cluster` might be the package of another project.
from cluster.compiled import use_compiled  # noqa: E402

use_compiled()
