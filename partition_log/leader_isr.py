"""A leader's ISR: the committed one, the one it has proposed, and who counts meanwhile.

Only the controller changes an ISR. While an AlterPartition is in flight nobody knows whether it
was applied, so the high watermark waits for the *maximal* ISR: the committed one and whoever is
being added. Who is being removed counts until the removal is confirmed. Source: Kafka
`Partition.PartitionState`, KIP-497.
"""

from partition_log.outcomes import IsrProposal
from protocol.controller_messages import AlterPartitionPartitionData, BrokerState
from protocol.ids import BrokerId, LeaderEpoch, PartitionEpoch


class LeaderIsr:
    """The ISR of one partition, with at most one proposal in flight.

    Invariant: `committed` is a subset of `maximal`; they are equal with nothing in flight.
    Attributes, to read only: `committed`, `maximal`, `in_flight` (None: nothing was proposed).
    """

    __slots__ = ("committed", "in_flight", "maximal")

    def __init__(self) -> None:
        self.committed: tuple[BrokerId, ...] = ()
        self.maximal: tuple[BrokerId, ...] = ()
        self.in_flight: IsrProposal | None = None

    def commit(self, isr: tuple[BrokerId, ...]) -> None:
        """Take `isr` from the controller; a proposal in flight is answered or out of date."""
        self.committed = isr
        self.maximal = isr
        self.in_flight = None

    def revert(self) -> None:
        """Drop the proposal in flight, which was certainly not applied."""
        self.commit(self.committed)

    def propose(
        self,
        new_isr: tuple[BrokerId, ...],
        *,
        partition_index: int,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        broker_epochs: tuple[int, ...],
    ) -> IsrProposal:
        """Put a proposal of `new_isr` in flight and return it.

        Shape: `broker_epochs` are those of `new_isr`, -1 where unknown.
        """
        proposal = IsrProposal(
            data=AlterPartitionPartitionData(
                partition_index=partition_index,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                new_isr_with_epochs=tuple(
                    BrokerState(broker_id, broker_epoch)
                    for broker_id, broker_epoch in zip(new_isr, broker_epochs, strict=True)
                ),
            ),
            new_isr=new_isr,
            added=tuple(broker for broker in new_isr if broker not in self.committed),
            removed=tuple(broker for broker in self.committed if broker not in new_isr),
        )
        self.in_flight = proposal
        self.maximal = self.committed + proposal.added
        return proposal
