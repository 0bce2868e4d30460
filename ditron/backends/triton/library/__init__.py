"""What emitted kernels call: waits and notifies, for NVIDIA (`cuda`) and AMD (`hip`).

All inline assembly stands here; the interpreter has a hook for each piece (`HOOKS`).
"""
