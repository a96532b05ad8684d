"""Exact placement and order for ``overlap``: complete search of tiny problems, a constraint model of larger ones."""
