"""Checks before the start of a standing cluster that its listeners can be opened."""

import os
import socket

from cluster.spec import ListenerSpec

LOOPBACK = "127.0.0.1"
_PORT_MAX = 65_535


class PortTaken(Exception):
    """A listener of the cluster cannot be opened; the message has the address and the reason."""


def check_ports(listener: ListenerSpec, brokers: int) -> None:
    """Check that each broker's listener can be opened now; close it again.

    Raises: PortTaken.
    """
    host = listener.host or LOOPBACK
    first = listener.first_port
    if first and first + brokers - 1 > _PORT_MAX:
        raise PortTaken(
            f"{brokers} brokers need the ports from {first} on; expected a first port of at most "
            f"{_PORT_MAX - brokers + 1}"
        )
    # Port 0 means that the system chooses a free port for each broker. Then only the host can be
    # wrong, which a single attempt shows.
    for port in range(first, first + brokers) if first else (0,):
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind) as probe:
                if os.name == "posix":
                    # The brokers' listeners set this option, too. Without it a port stays taken for
                    # a minute after a former cluster has closed its connections (TIME_WAIT). The
                    # option is not set on Windows, where it would permit a port at which another
                    # program listens.
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
        return False  # a host that cannot be found is not taken for this machine
    addresses = [str(socket_address[0]) for *_, socket_address in entries]
    return all(address == "::1" or address.startswith("127.") for address in addresses)
