"""The mid-end: one pass a file, the file's name is the pass's with `-` as `_`."""
