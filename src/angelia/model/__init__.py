"""Nouns: frozen types, enums and errors. Standard library only, and no input or output."""
