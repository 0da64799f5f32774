"""Use cases, one file each: open the store once, get a runtime, call the layers below, and report."""
