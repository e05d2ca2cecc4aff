"""Which addresses are this machine's own."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from functools import lru_cache

from crawlproject.politeness.addresses import Address
from crawlproject.sources.domains import RECENT

_LOOK_EVERY_S = 60.0  # an interface may get another address
_NOBODYS = {4: ipaddress.ip_address("240.0.0.1"), 6: ipaddress.ip_address("100::1")}  # reserved; discard-only


# What the kernel says of an address that is not here, also of a family that it has not got. Anything else, such as
# no more files to open, says nothing about the address.
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL}


def is_own(address: Address) -> bool:
    """Tell whether an address belongs to an interface of this machine, as this process sees it.

    An address that a NAT translates, as clouds' public ones often are, or a container's host's, belongs to none.
    Where the kernel lets processes bind to any address (`net.ipv4.ip_nonlocal_bind`), none is known to be its own.
    As long as the kernel does not answer, every address may be.
    """
    try:
        return _is_own(address, int(time.monotonic() / _LOOK_EVERY_S))
    except OSError:
        return True


@lru_cache(RECENT)
def _is_own(address: Address, _: int) -> bool:
    # The kernel is asked about one address, not for a list: it knows all of them, secondary ones and whole
    # networks included, on every system, and without a library.
    return _can_bind(address) and not _can_bind(_NOBODYS[address.version])


def _can_bind(address: Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((str(address), 0))
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True
