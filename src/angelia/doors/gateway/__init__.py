"""The gateway: JSON-RPC 2.0 over a WebSocket, in Hermes' vocabulary and our own."""
