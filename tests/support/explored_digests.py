"""Plays explored runs in one process and prints their digests as JSON: a child of the tests.

An explored run is one whose schedule of faults a seed draws from a space (a file of what may vary).
A digest is a hash over all rows of a run: equal digests mean equal runs.

`python -m tests.support.explored_digests 20` plays the seeds 0 to 19 of the reference space, with
compiled modules if they exist and COORDLAB_COMPILED is not 0.
"""

import json
import sys

from cluster.compiled import compiled_state, use_compiled

# This call must stand before the imports below: it installs the finder of the compiled modules.
use_compiled()

from chaos.exploration.batches import play_seed  # noqa: E402
from chaos.exploration.space import load_space  # noqa: E402


def main() -> None:
    """Print which code ran, and the digest, verdict, events and marks of each run."""
    space = load_space("reference")
    runs = [play_seed(space, seed) for seed in range(int(sys.argv[1]))]
    results = [[run.digest, run.result, run.events, *run.reasons, *run.marks] for run in runs]
    print(json.dumps({"state": compiled_state().name, "runs": results}))


if __name__ == "__main__":
    main()
