"""Doors: parse, one bus call, encode. No door knows another."""
