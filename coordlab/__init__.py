"""The command line, which connects all other packages.

Reading order:
- `cli` has the list of commands.
- `program` has the program's name and exit codes.
- `options` and `parameters` have options and types that several commands share.
- `standing_options` has options of the commands that ask a running cluster.
- `commands` has a module or a folder for each command.
- `views` and `console` print output that several commands share.
- `analysis` calls Spark, and writes pages.
- `report_facts` and `settings_facts` collect facts for the pages of a run.
- `seed_names` names the directories of `run --seeds`, and `junit` writes JUnit XML.
- `schedules` finds the schedule that the user names.
- `signals` handles Ctrl-C, and `output` handles streams whose reader is gone.
- `errors` has the texts and exit codes of errors.
- `own_packages` checks that no foreign package is imported.

`make fast` compiles some modules, so that runs are faster. When this package is imported, it makes
Python use the compiled modules.
"""

from coordlab.own_packages import require_own_packages

require_own_packages()

# Imported only after the check: `cluster` might be the package of another project.
from cluster.compiled import use_compiled  # noqa: E402

use_compiled()
