"""Our cluster answers as a real Kafka 3.9.1 does, except for the known differences.

Each recording has requests that were sent to a real Kafka, and Kafka's answers. The requests are
played against our cluster in virtual time (a simulated clock). known_differences.json lists the
steps at which our answers differ. The test fails if there is a new difference, and also if a listed
one no longer exists.
"""

import json
from pathlib import Path

import pytest

from chaos.conformance.conformity import judge_transcript
from chaos.conformance.transcript import find_transcripts, read_rules, read_transcript
from tests.conformance.known_differences import TRANSCRIPTS, differences_of, read_known

PATHS = find_transcripts(TRANSCRIPTS)
RULES = read_rules(TRANSCRIPTS)
KNOWN = read_known()


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_recording_differs_exactly_in_its_known_steps(path: Path) -> None:
    """docs/FIDELITY.md gives the reason of each known difference."""
    conformity = judge_transcript(read_transcript(path), RULES)
    message = "\n".join(str(difference) for difference in conformity.differences)
    assert differences_of(conformity) == KNOWN.get(conformity.id, []), message


def test_index_names_every_recording_with_its_steps() -> None:
    """The test above plays what it finds, so it would not notice a missing recording."""
    index = json.loads((TRANSCRIPTS / "index.json").read_text())
    listed = {scenario["file"]: scenario["steps"] for scenario in index["scenarios"]}
    present = {
        str(path.relative_to(TRANSCRIPTS)): len(read_transcript(path).steps) for path in PATHS
    }
    assert present == listed
    assert index["tolerance_ms"] == RULES.tolerance_ms
    assert frozenset(index["ignore"]) == RULES.ignore
