"""What each command takes and does: one type a command.

The options of the command line, the keywords of the Python function and the parameters of the HTTP API are its fields.
"""
