"""The ports of a standing cluster: whether they are free, before anything is started."""

import os
import socket

from cluster.spec import ListenerSpec

LOOPBACK = "127.0.0.1"


class PortTaken(Exception):
    """A listener of the cluster cannot be opened; names the address and why."""


def check_ports(listener: ListenerSpec, brokers: int) -> None:
    """Check that each broker's listener can be opened now, and open none.

    Raises: PortTaken.
    """
    host = listener.host or LOOPBACK
    first = listener.first_port
    if first and first + brokers - 1 > 65_535:
        raise PortTaken(
            f"{brokers} brokers need the ports from {first} on; expected a first port of at most "
            f"{65_535 - brokers + 1}"
        )
    for port in range(first, first + brokers) if first else (0,):
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind) as probe:
                if os.name == "posix":
                    # As a server does: connections that a former one has closed are no obstacle.
                    # Elsewhere this option would allow a port that another program listens at.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen(1)
        except OSError as error:
            raise PortTaken(
                f"nothing can listen at {host}:{port}: {error.strerror or error}; no cluster was "
                "started"
            ) from error


def is_loopback(host: str | None) -> bool:
    """Return whether only programs of this machine reach `host`."""
    if host is None:
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = [str(each[4][0]) for each in found]
    return all(address == "::1" or address.startswith("127.") for address in addresses)
