"""Known differences between the answers of our cluster and Kafka's.

A transcript is a recording of a real Kafka: requests, and Kafka's answers. The requests are sent
to our cluster, and its answers are compared with Kafka's. `python -m
tests.conformance.known_differences` plays every transcript and writes the list of differences anew.
docs/FIDELITY.md explains each difference.
"""

import json
from pathlib import Path

from chaos.conformance.conformity import FileConformity, judge_transcript
from chaos.conformance.transcript import find_transcripts, read_rules, read_transcript

FOLDER = Path(__file__).parent
TRANSCRIPTS = FOLDER / "transcripts"
KNOWN_DIFFERENCES = FOLDER / "known_differences.json"


def read_known() -> dict[str, list[str]]:
    """Return the differences by the id of their transcript."""
    known: dict[str, list[str]] = json.loads(KNOWN_DIFFERENCES.read_text())
    return known


def differences_of(conformity: FileConformity) -> list[str]:
    """Return one line for each step that differs.

    A line has no values, because they may be ids, which are drawn anew in each run.
    """
    return [
        f"{step.n} {step.api}{'' if step.version is None else f' v{step.version}'}: "
        f"{step.what} {step.field}".rstrip()
        for step in conformity.differences
    ]


def _write() -> None:
    """Play every transcript, and write the differences to the file."""
    rules = read_rules(TRANSCRIPTS)
    known = {}
    for path in find_transcripts(TRANSCRIPTS):
        conformity = judge_transcript(read_transcript(path), rules)
        if conformity.differences:
            known[conformity.id] = differences_of(conformity)
    KNOWN_DIFFERENCES.write_text(json.dumps(known, indent=1) + "\n")
    print(f"{sum(map(len, known.values()))} steps of {len(known)} transcripts differ")


if __name__ == "__main__":
    _write()
