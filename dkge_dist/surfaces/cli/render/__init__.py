"""Reports as text for people. In: the report of one command, as its JSON has it. Out: lines on stdout."""
