"""Backends: how a plan and its kernels become something that runs on a target."""
