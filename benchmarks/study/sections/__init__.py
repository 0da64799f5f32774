"""What the page says: a section a part, made of what has been measured, with what is published beside it.

Sentences are made from the figures, so that they also say where we lose.
"""
