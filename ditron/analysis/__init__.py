"""Read-only questions about programs and plans; each returns plain data."""
