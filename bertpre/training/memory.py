"""How the C library hands out memory: on a CPU, page faults can take a third of an update."""

import ctypes
import platform

# Source: glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let the process keep the memory that it frees, for the next update to use.

    An update allocates and frees hundreds of blocks of megabytes. By default each is mapped anew
    and faulted in page by page. Afterwards the process holds on to its peak until it ends. Only
    glibc is told so; elsewhere nothing changes.

    Returns:
        Whether the C library obeys.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, _NEVER))
