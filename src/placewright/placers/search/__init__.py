"""Search by small changes: states that judge a change, moves that propose one, the loop that accepts it; samples."""
