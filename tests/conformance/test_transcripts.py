"""Every recording of real Kafka 3.9.1, played against our cluster in virtual time.

Virtual time is a simulated clock. A recording has requests that were sent to Kafka, and Kafka's
answers. known_differences.json lists the known differences of our answers, step by step. The test
fails for a new difference, and also for a listed one that no longer exists.
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
    """The reasons of the known differences are in docs/FIDELITY.md."""
    conformity = judge_transcript(read_transcript(path), RULES)
    message = "\n".join(str(difference) for difference in conformity.differences)
    assert differences_of(conformity) == KNOWN.get(conformity.id, []), message


def test_index_names_every_recording_with_its_steps() -> None:
    """No other test would notice a recording that is missing, because each plays what it finds."""
    index = json.loads((TRANSCRIPTS / "index.json").read_text())
    listed = {scenario["file"]: scenario["steps"] for scenario in index["scenarios"]}
    present = {
        str(path.relative_to(TRANSCRIPTS)): len(read_transcript(path).steps) for path in PATHS
    }
    assert present == listed
    assert index["tolerance_ms"] == RULES.tolerance_ms
    assert frozenset(index["ignore"]) == RULES.ignore
