"""Floor 2: pure state machines. They take `now` and answer; no socket, lock, clock, thread or chance lives here."""
