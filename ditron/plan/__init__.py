"""Plain data that the compiler reasons with: no xDSL, no torch."""
