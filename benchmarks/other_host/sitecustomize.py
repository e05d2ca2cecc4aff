"""Has a Python process believe that its host is called `HOST_NAME`; with this folder on PYTHONPATH.

As in a container that was recreated, or in several of equal name.
"""

from __future__ import annotations

import os
import socket

if "HOST_NAME" in os.environ:
    socket.gethostname = lambda: os.environ["HOST_NAME"]
