"""Whether an explored run did the work that its space says each run must do."""

from chaos.exploration.play import PlayedRun
from chaos.exploration.space_definition import Minimum


def missing_of(minimum: Minimum, played: PlayedRun) -> list[str]:
    """Return what `played` did too little of, in words; nothing if it did enough."""
    commits = sum(played.requests.get(api, 0) for api in ("OffsetCommit", "TxnOffsetCommit"))
    did = {
        "fetches": (played.requests.get("Fetch", 0), minimum.fetches),
        "commits": (commits, minimum.commits),
        "faults": (played.faults_hit, minimum.faults),
    }
    return [f"{name}: {done} of {least}" for name, (done, least) in did.items() if done < least]
