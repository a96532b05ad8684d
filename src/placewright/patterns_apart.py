"""The process in which patterns that may take long are searched for: ``python -S -P patterns_apart.py PATHS BYTES``."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer a pattern and names with whether each name holds it."""
    import re
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its parent says so
    sys.path[:] = json.loads(sys.argv[1])
    from placewright.apart import serve

    def answer(question: bytes) -> list[bool]:
        pattern, *names = json.loads(question)
        compiled = re.compile(pattern)
        return [compiled.search(name) is not None for name in names]

    serve(answer, int(sys.argv[2]))


if __name__ == "__main__":
    main()
