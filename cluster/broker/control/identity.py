"""Who this broker is to the others: its id, and the epoch that the controller gave this life."""

from dataclasses import dataclass

from protocol.ids import BrokerEpoch, BrokerId

NO_BROKER_EPOCH = BrokerEpoch(-1)


@dataclass(slots=True, kw_only=True)
class BrokerIdentity:
    """`broker_epoch` is -1 until this incarnation is registered; only `heartbeats` writes it."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
