"""The dialects, one a file, and what they share."""
