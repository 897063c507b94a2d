"""Hands and doors to other hubs and to gateways of Hermes'."""
