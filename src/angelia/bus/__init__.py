"""Verbs: what the product does. Knows no database and no wire."""
