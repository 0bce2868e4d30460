"""Runs plans on real memory: the interleaved oracle, and the pool of CPU rank processes.

Nothing heavy is imported here; take what you need from the modules (`posix.CpuExecutor`,
`interleave.run_interleaved`).
"""
