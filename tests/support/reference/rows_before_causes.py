"""The rows of runs as they were before causes became enums and restarted sessions became rows.

`python -m tests.support.reference.rows_before_causes` prints a digest for each run: of every row of
a kind that was there then, without its number in its node's life, and with the text for people as
the cause. The record was written by the commit before the first move (46c26c9).
"""

import json
import sys
from collections.abc import Iterator
from hashlib import blake2b

from chaos.experiment.loader import list_experiments, load_experiment
from chaos.exploration.draw.draw import draw
from chaos.exploration.play import play
from chaos.exploration.space import load_space
from protocol.trace import TraceRow
from tests.support.worlds.acceptance import play_virtual

NEW_KINDS = frozenset({"session_restarted"})
MOVED_DETAIL = {
    "rebalance_started": frozenset({"client_reason", "silent_members"}),
    "commit_stored": frozenset({"producer_id"}),
}
"""Facts that stood in the text of the cause and are fields of the detail now, by kind."""
MOVED_ERROR = frozenset({"rebalance_started", "member_state"})
"""Kinds whose error, and API, stood in the text of the cause."""
SEED = 7
DRAWN = range(40)


def main() -> None:
    """Print the digests as one JSON object."""
    digests = {name: experiment_digest(name) for name in names()}
    digests |= {f"standard/{seed}": drawn_digest(seed) for seed in DRAWN}
    sys.stdout.write(json.dumps(digests, indent=1) + "\n")


def names() -> list[str]:
    """Return the experiments that have a name."""
    return sorted(each.name for each in list_experiments())


def experiment_digest(name: str) -> str:
    """Run an experiment in virtual time and return the digest of its rows."""
    return digest_of(play_virtual(load_experiment(name).experiment, seed=SEED).rows)


def drawn_digest(seed: int) -> str:
    """Run a seed of the standard space and return the digest of its rows."""
    rows: list[TraceRow] = []
    play(draw(load_space("standard"), seed), seed, observers=(rows.append,))
    return digest_of(rows)


def digest_of(rows: list[TraceRow]) -> str:
    """Return the digest of rows in the order of time and of their lives."""
    digest = blake2b(digest_size=12)
    ordered = sorted(rows, key=lambda row: (row.time_us, row.node, row.incarnation, row.seq))
    for row in ordered:
        if row.kind not in NEW_KINDS:
            digest.update(repr(tuple(_columns(row))).encode())
    return digest.hexdigest()


def _columns(row: TraceRow) -> Iterator[object]:
    yield from (row.time_us, row.node_time_us, row.node, row.incarnation, str(row.kind))
    yield from (row.peer, row.group, row.member, row.partition, row.generation)
    yield from (row.leader_epoch, row.offset)
    yield None if row.kind in MOVED_ERROR else row.api
    yield row.correlation_id
    yield None if row.kind in MOVED_ERROR else row.error
    yield row.explanation and str(row.explanation)
    moved = MOVED_DETAIL.get(row.kind, frozenset())
    detail = json.loads(row.detail) if row.detail else {}
    yield sorted((name, repr(value)) for name, value in detail.items() if name not in moved)


if __name__ == "__main__":
    main()
