"""A child process that answers every message with what it says."""

from __future__ import annotations

import contextlib

from placewright.execute.child import parent_connection

if __name__ == "__main__":
    connection = parent_connection()
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send((True, connection.recv()[0]))
