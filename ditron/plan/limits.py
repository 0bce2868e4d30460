"""How large things may be, so that index arithmetic stays within 64 bits and tables in memory."""

MAX_RANKS = 1 << 16
MAX_ELEMENTS = 1 << 48  # of one tensor; no integer of an index expression is beyond it either
MAX_TASKS = 1 << 23  # of one grid on all ranks; each takes some hundred bytes of tables
