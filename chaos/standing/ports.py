"""Checks whether the listeners of a standing cluster can be opened, before the cluster starts."""

import os
import socket

from cluster.spec import ListenerSpec

LOOPBACK = "127.0.0.1"
_PORT_MAX = 65_535


class PortTaken(Exception):
    """A listener of the cluster cannot be opened. The message has its address and the reason."""


def check_ports(listener: ListenerSpec, brokers: int) -> None:
    """Check that the listener of each broker can be opened now.

    Each listener is opened and closed again. Raises: PortTaken.
    """
    host = listener.host or LOOPBACK
    first = listener.first_port
    if first and first + brokers - 1 > _PORT_MAX:
        raise PortTaken(
            f"{brokers} brokers need the ports from {first} on; expected a first port of at most "
            f"{_PORT_MAX - brokers + 1}"
        )
    # If `first` is 0, the system chooses a free port for each broker. Then only the host can be
    # wrong, and one attempt is enough to notice this.
    for port in range(first, first + brokers) if first else (0,):
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind) as probe:
                if os.name == "posix":
                    # The listeners of the brokers set this option, too. Without the option, a port
                    # stays taken for a minute after an earlier cluster has closed its connections
                    # (TIME_WAIT). On Windows the option would permit a port at which another
                    # program listens, so it is not set there.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen(1)
        except OSError as error:
            raise PortTaken(
                f"nothing can listen at {host}:{port}: {error.strerror or error}; no cluster was "
                "started"
            ) from error


def is_loopback(host: str | None) -> bool:
    """Return True if only programs of this machine can reach `host`.

    None stands for the loopback address.
    """
    if host is None:
        return True
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False  # if the host is unknown, do not assume that it is this machine
    addresses = [str(socket_address[0]) for *_, socket_address in entries]
    # The loopback addresses of IPv6 and IPv4
    return all(address == "::1" or address.startswith("127.") for address in addresses)
