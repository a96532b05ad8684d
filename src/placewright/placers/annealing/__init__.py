"""Annealing: a simulator that starts over from a checkpoint, moves that know the graph, and chains of moves."""
