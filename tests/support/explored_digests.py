"""Play runs of the search for bugs, and print the results as JSON.

Tests start this module as a process. `python -m tests.support.explored_digests 20` plays the seeds
0 to 19 of the space `reference`. (A space is a file that says which faults and settings a run may
have.) A test compares the results of compiled modules with the results of interpreted modules.
Compiled modules are used if they exist, unless the variable COORDLAB_COMPILED is 0.
"""

import json
import sys

from cluster.compiled import compiled_state, use_compiled

# This must come before the imports below, because it lets Python find the compiled modules.
use_compiled()

from chaos.exploration.batches import play_seed  # noqa: E402
from chaos.exploration.space import load_space  # noqa: E402


def main() -> None:
    """Print whether the compiled modules were used, and the results of each run.

    Among the results is the digest, which is a hash over all recorded events of the run.
    """
    space = load_space("reference")
    runs = [play_seed(space, seed) for seed in range(int(sys.argv[1]))]
    results = [[run.digest, run.result, run.events, *run.reasons, *run.marks] for run in runs]
    print(json.dumps({"state": compiled_state().name, "runs": results}))


if __name__ == "__main__":
    main()
