"""What the clients know, without a socket, a thread or a clock: plans, which two thin drivers carry out."""
