"""A version of a store opened to be asked: answers, scores, neighbours, ranks, and why."""
