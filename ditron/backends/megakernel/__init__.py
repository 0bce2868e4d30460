"""A rank's whole program as one persistent kernel; see `docs/megakernel.md`."""
