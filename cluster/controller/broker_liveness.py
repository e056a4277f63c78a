"""When each unfenced broker was last heard of: the controller's soft state.

It is not in the metadata log: a controller that takes over gives every broker a full session.
Source: Kafka `BrokerHeartbeatManager`.
"""

from protocol.ids import BrokerId


class BrokerLiveness:
    """The last heartbeat of every unfenced broker. Fenced brokers are not tracked.

    Units: microseconds on the controller's clock.
    """

    def __init__(self, session_timeout_us: int) -> None:
        self._session_timeout_us = session_timeout_us
        self._last_contact_us: dict[BrokerId, int] = {}

    def touch(self, broker_id: BrokerId, now_us: int) -> None:
        """Begin the broker's session anew: it was heard of at `now_us`."""
        self._last_contact_us[broker_id] = now_us

    def remove(self, broker_id: BrokerId) -> None:
        """Forget the broker: it was fenced."""
        self._last_contact_us.pop(broker_id, None)

    def silent_us(self, broker_id: BrokerId, now_us: int) -> int | None:
        """Return for how long the broker has been silent, None if it is not tracked."""
        last_contact_us = self._last_contact_us.get(broker_id)
        return None if last_contact_us is None else now_us - last_contact_us

    def has_valid_session(self, broker_id: BrokerId, now_us: int) -> bool:
        """Return whether the broker is unfenced and its session has not ended."""
        silent_us = self.silent_us(broker_id, now_us)
        return silent_us is not None and silent_us < self._session_timeout_us

    def find_stale_broker(self, now_us: int) -> BrokerId | None:
        """Return the broker that has been silent longest, if its session has ended."""
        broker_id = self._longest_silent()
        if broker_id is None or self.has_valid_session(broker_id, now_us):
            return None
        return broker_id

    def next_check_us(self) -> int | None:
        """Return when the first session ends if nothing is heard, None if none runs."""
        broker_id = self._longest_silent()
        if broker_id is None:
            return None
        return self._last_contact_us[broker_id] + self._session_timeout_us

    def _longest_silent(self) -> BrokerId | None:
        return min(self._last_contact_us, key=self._last_contact_us.__getitem__, default=None)
