"""A plan on the wire: its fields, its reasons."""
