"""List scheduling for ``overlap``: kernels and their use, shared by ``heft``, ``peft``, ``cpop``, ``etf``, ``sct``."""
