"""What a decoder process can do once a picture has taken it over: next to nothing.

Layers that need no privileges, each of which holds without the others:

- seccomp(2): only the system calls that decoding needs are left, so that nothing can be opened, connected,
  started, traced or signalled, and most of the kernel is out of reach;
- landlock(7): no file can be opened, no TCP connection made, no other process traced or signalled;
- no new privileges, no capabilities, limits on files, processes and core dumps;
- the worker is not dumpable (prctl(2)), so that no process of its user reads its memory or its environment.

By ctypes, for a few calls: pyseccomp needs a libseccomp.so that no wheel brings.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CAPABILITIES_VERSION_3 = 0x20080522  # capset(2)

# The columns of the numbers below (asm/unistd_64.h, asm-generic/unistd.h), and the names in linux/audit.h.
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

# The system calls of decoding, frequent ones first. All are about this process alone, or about descriptors that it
# has: its socket and /dev/null.
_CALLS = {
    **{"mmap": (9, 222), "munmap": (11, 215), "brk": (12, 214), "futex": (202, 98), "madvise": (28, 233)},
    **{"recvfrom": (45, 207), "sendto": (44, 206), "mremap": (25, 216)},
    **{"mprotect": (10, 226), "read": (0, 63), "readv": (19, 65), "write": (1, 64), "writev": (20, 66)},
    **{"close": (3, 57), "dup2": (33, 24), "fstat": (5, 80), "lseek": (8, 62), "ppoll": (271, 73)},
    **{"clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169)},
    **{"nanosleep": (35, 101), "clock_nanosleep": (230, 115), "restart_syscall": (219, 128)},
    **{
        "getcwd": (79, 17),
        "sched_yield": (24, 124),
        "sched_getaffinity": (204, 123),
        "sysinfo": (99, 179),
        "getrusage": (98, 165),
    },
    **{"getpid": (39, 172), "gettid": (186, 178), "getrandom": (318, 278), "membarrier": (324, 283)},
    **{"rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139)},
    **{"sigaltstack": (131, 132), "set_robust_list": (273, 99), "rseq": (334, 293)},
    **{"exit": (60, 93), "exit_group": (231, 94)},
}
_KILL, _TGKILL, _PRLIMIT64 = (62, 129), (234, 131), (302, 261)  # for this process alone; abort(3) signals itself
_CLONE, _CLONE3 = (56, 220), (435, 435)  # for threads alone
_SECCOMP = (317, 277)

# seccomp(2), and its programs (linux/filter.h, linux/seccomp.h)
_SET_MODE_FILTER, _TSYNC = 1, 1
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
# Offsets of what a call is judged by; the last is that of the lower half of its first argument.
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
_CLONE_THREAD = 0x10000

# Landlock, whose numbers are the same on all architectures (linux/landlock.h)
_CREATE_RULESET, _RESTRICT_SELF, _GET_VERSION = 444, 446, 1
# All that a version can deny: accesses to files, to TCP, and abstract sockets and signals beyond the sandbox.
_FILES = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 5: 0xFFFF}
_TCP = {4: 0b11}
_SCOPES = {6: 0b11}

# Of all processes of this user, which the kernel counts together; root's alone are not limited.
_MOST_THREADS = 4096

_WITHOUT_BOTH = "nothing keeps it from the files and the network that the worker has"


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def hide() -> None:
    """Keep other processes of this user from this process's memory, environment and descriptors.

    There are no core dumps of it any more, and only root can attach a debugger or profiler to it.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_DUMPABLE, 0)


def enter(threads: bool = False) -> list[str]:
    """Give up all that decoding does not need, for good: afterwards nothing can be opened, imported or started.

    With `threads`, threads can. Returns the layers that this system lacks, each with what that means.
    """
    if sys.platform != "linux":
        _limit(threads)
        return [f"no Landlock and no seccomp ({sys.platform} has neither): {_WITHOUT_BOTH}"]
    hide()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with the worker, whatever it does
    with suppress(OSError):  # without it there is neither Landlock nor seccomp, which will be said
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    missing = {}
    layers: dict[str, Callable[[], None]] = {
        "capset": _drop_capabilities,
        "Landlock": restrict_files,
        "seccomp": lambda: filter_calls(threads),
    }
    for name, layer in layers.items():
        if name == "seccomp":
            _limit(threads)  # Landlock needs a descriptor
        try:
            layer()
        except OSError as error:
            missing[name] = error.strerror
    meanings = {
        "capset": "it keeps the worker's privileges, if it has any",
        "Landlock": "seccomp alone denies it files",
        "seccomp": "it could open connections and run programs of its own",
    }
    if {"Landlock", "seccomp"} <= missing.keys():
        meanings |= dict.fromkeys(("Landlock", "seccomp"), _WITHOUT_BOTH)
    return [f"no {name} ({why}): {meanings[name]}" for name, why in missing.items()]


def restrict_files() -> None:
    """Deny this thread, by Landlock, all files, and what else the kernel's version of it can. Raises OSError."""
    version = _call(_CREATE_RULESET, None, 0, _GET_VERSION)
    denied = [
        max((bits for since, bits in each.items() if since <= version), default=0)
        for each in (_FILES, _TCP, _SCOPES)
    ]
    rules = struct.pack("QQQ", *denied)  # the end of which is unknown to old kernels, and zero there
    ruleset = _call(_CREATE_RULESET, rules, len(rules), 0)
    try:
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def filter_calls(threads: bool = False) -> None:
    """Deny this process, by seccomp, all but the system calls of decoding. Raises OSError.

    The others fail with EPERM rather than end it: libraries ask for some, and do without.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    column, architecture = _ARCHITECTURES[machine]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _EPERM),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for numbers in _CALLS.values():
        program += [(_IF_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ALLOW)]
    conditions = [(_KILL, _IF_EQUAL, os.getpid()), (_TGKILL, _IF_EQUAL, os.getpid()), (_PRLIMIT64, _IF_EQUAL, 0)]
    if threads:
        conditions.append((_CLONE, _IF_ANY_BIT, _CLONE_THREAD))
    for numbers, test, operand in conditions:
        program += [
            (_IF_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, _ARGUMENT),
            (test, 0, 1, operand),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _EPERM),
        ]
    # Its arguments are in memory, where a filter cannot see them: glibc takes clone instead.
    program += [(_IF_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ENOSYS), (_RETURN, 0, 0, _EPERM)]
    code = b"".join(struct.pack("HBBI", *each) for each in program)
    if _call(_SECCOMP[column], _SET_MODE_FILTER, _TSYNC, ctypes.byref(_Program(len(program), code))):
        raise OSError(errno.EBUSY, "one of its threads cannot be filtered")


def _limit(threads: bool) -> None:
    # Descriptors beyond the first three; what is open stays so.
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: 3}
    limits[resource.RLIMIT_NPROC] = _MOST_THREADS if threads else 0
    for kind, limit in limits.items():
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit, limit) if most == resource.RLIM_INFINITY else (min(limit, most),) * 2)


def _drop_capabilities() -> None:
    """Drop what a worker has that runs as root, or in a container that was given some."""
    _check(ctypes.CDLL(None, use_errno=True).capset(struct.pack("Ii", _CAPABILITIES_VERSION_3, 0), bytes(24)))


def _prctl(option: int, value: int) -> None:
    _check(ctypes.CDLL(None, use_errno=True).prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))))


def _call(number: int, *arguments: object) -> int:
    """Make a system call; an error is an OSError."""
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _check(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *wide))


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
