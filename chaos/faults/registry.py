"""All faults by name.

A new fault is one class and one line in `FAULT_KINDS`. The table is used by the loader (for its
errors about a file), the runner, the journal (the list of a run's faults) and the generated
documentation.
"""

from chaos.faults.base import FaultKind
from chaos.faults.groups import DeleteGroup, DeleteOffsets, RemoveMembers, ResetOffsets
from chaos.faults.leadership import LeadershipMove, PreferredLeaderElection
from chaos.faults.links import ClogLinks, CutLinks, ResetConnections, ResponseLoss, SlowLinks
from chaos.faults.machines import MachineCut, MachineLoss, MachinePause
from chaos.faults.processes import ControlledShutdown, Crash, NodeLoss, Pause, PowerLoss
from chaos.faults.rollouts import RolloutFault, ScaleFault
from chaos.faults.topics import CreateTopic, DeleteTopic

FAULT_KINDS: dict[str, FaultKind] = {
    kind.name: kind
    for kind in (
        Crash(),
        PowerLoss(),
        ControlledShutdown(),
        Pause(),
        NodeLoss(),
        MachineLoss(),
        MachinePause(),
        MachineCut(),
        RolloutFault(),
        ScaleFault(),
        LeadershipMove(),
        PreferredLeaderElection(),
        RemoveMembers(),
        DeleteGroup(),
        DeleteOffsets(),
        ResetOffsets(),
        CreateTopic(),
        DeleteTopic(),
        CutLinks(),
        ClogLinks(),
        SlowLinks(),
        ResetConnections(),
        ResponseLoss(),
    )
}
