"""What users write programs with, one file a level."""
