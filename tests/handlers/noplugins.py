"""With this imported, gevent looks for no plugins when it patches: it would look through all installed packages, once for each module, for 0.2 s."""

from gevent import events

events.notify_and_call_entry_points = events.notify
