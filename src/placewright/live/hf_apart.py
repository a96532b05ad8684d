"""The process in which a checkpoint folder becomes a problem: ``python -S -P hf_apart.py PATHS MOST_BYTES``."""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Answer sources (``hf:DIR?…``) with their problems."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its parent says so
    sys.path[:] = json.loads(sys.argv[1])
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    import torch
    import transformers

    from placewright.apart import serve
    from placewright.live.hf import problem_in_this_process

    torch.set_num_threads(1)
    _ = transformers.AutoConfig, transformers.AutoModel  # imported now, not within the time for an answer
    serve(lambda question: problem_in_this_process(question.decode("utf-8", "surrogateescape")), int(sys.argv[2]))


if __name__ == "__main__":
    main()
