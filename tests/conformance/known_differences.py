"""The known differences between the answers of our cluster and those of a real Kafka.

A transcript is a recording of a real Kafka: requests, with Kafka's answers. The requests are played
against our cluster, and its answers are compared with Kafka's. known_differences.json lists the
steps that differ, and docs/FIDELITY.md says why. `python -m tests.conformance.known_differences`
plays all transcripts and writes the list anew.
"""

import json
from pathlib import Path

from chaos.conformance.conformity import FileConformity, judge_transcript
from chaos.conformance.transcript import find_transcripts, read_rules, read_transcript

FOLDER = Path(__file__).parent
TRANSCRIPTS = FOLDER / "transcripts"
KNOWN_DIFFERENCES = FOLDER / "known_differences.json"


def read_known() -> dict[str, list[str]]:
    """Return the list of known differences: transcript id -> lines of `differences_of`."""
    known: dict[str, list[str]] = json.loads(KNOWN_DIFFERENCES.read_text())
    return known


def differences_of(conformity: FileConformity) -> list[str]:
    """Return a line such as `2 JoinGroup v9: answer generation_id` for each step that differs.

    The different values are left out, because they may be ids, which differ in each run.
    """
    lines = []
    for step in conformity.differences:
        version = "" if step.version is None else f" v{step.version}"
        line = f"{step.n} {step.api}{version}: {step.what} {step.field}"
        lines.append(line.rstrip())
    return lines


def _write() -> None:
    """Play all transcripts, and write the list of differences."""
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
