"""Check that an explored run did the work that its space requires.

A run with few fetches, commits or faults would pass without showing anything. So a space file says
how many of them each run must have at least (Minimum).
"""

from chaos.exploration.play import PlayedRun
from chaos.exploration.space_definition import Minimum


def missing_work(minimum: Minimum, played: PlayedRun) -> list[str]:
    """Return what the run did too little of, such as ["fetches: 3 of 20"]."""
    commits = sum(played.requests.get(api, 0) for api in ("OffsetCommit", "TxnOffsetCommit"))
    counts = {
        "fetches": (played.requests.get("Fetch", 0), minimum.fetches),
        "commits": (commits, minimum.commits),
        "faults": (played.faults_hit, minimum.faults),
    }
    return [f"{name}: {done} of {least}" for name, (done, least) in counts.items() if done < least]
