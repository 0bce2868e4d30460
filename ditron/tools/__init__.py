"""Command-line tools: `ditron` and `ditron-opt`."""
