"""Tables of vectors by row, with their optimizer state: the protocol that training speaks, and the in-process table."""
