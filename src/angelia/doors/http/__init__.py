"""The HTTP door: the seed's bus, the native interface under /v1, and streams of both."""
