"""Measuring what ops and copies really cost: runtimes, copies, campaigns that can be interrupted and resumed."""
