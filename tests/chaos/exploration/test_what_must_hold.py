"""What no design promises is a finding where a group asks for it, and a cost where none does."""

from pathlib import Path

from chaos.experiment.loader import load_experiment
from chaos.exploration.play import PlayResult, play

ZOMBIE = Path(__file__).resolve().parents[2] / "schedules" / "zombie_on_zookeeper.yaml"
CHECK = "one_owner_processes"


def test_zombie_is_a_finding_where_its_group_asks_for_one_owner() -> None:
    """One pause is enough: ZK-58, a consumer without ZooKeeper goes on processing."""
    played = play(load_experiment(str(ZOMBIE)).experiment, 1)

    assert played.result is PlayResult.VIOLATED
    assert {finding.signature.check for finding in played.findings} == {CHECK}
    assert {"processed_without_a_session", "lost_with_its_session"} <= set(played.marks)


def test_zombie_is_no_finding_where_no_group_asks() -> None:
    """Off by default: the same plan and seed break no promise."""
    asked = load_experiment(str(ZOMBIE)).experiment
    unasked = load_experiment(str(ZOMBIE), ["groups.old.must_hold=[]"]).experiment
    assert asked.faults == unasked.faults

    assert play(unasked, 1).result is PlayResult.PASS
