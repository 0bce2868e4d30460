"""GPUs: kernels as Triton code, for NVIDIA and AMD. Imports Triton only when it is used."""
