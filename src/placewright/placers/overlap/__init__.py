"""Latency under ``overlap``: list schedulers, complete search of tiny problems, a constraint model of larger ones."""
