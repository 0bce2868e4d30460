"""Transfers by copy engines: the host's calls, and kernels for where those cannot do."""
