"""Benchmarks: each prints what it measured beside what a user would run instead."""
