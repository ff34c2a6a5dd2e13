"""pykafka's documented home of the command: `main()`, and `python gkafka/cli/kafka_tools.py --help`."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__" and sys.path and os.path.abspath(sys.path[0]) == HERE:
    # Run as a script, its folder comes first: there copy.py would hide Python's own.
    sys.path[0] = os.path.dirname(os.path.dirname(HERE))


def main() -> int:
    """Run the command line of this process. Returns the exit code: 0 fine, 1 failed, 2 not understood, 130 interrupted."""
    try:
        from gkafka.cli import app
    except ImportError as exc:
        if (exc.name or "").partition(".")[0] != "click":
            raise
        print("kafka-tools: needs the package click, which is not installed\n  next: pip install 'click>=8.4'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return app.main()


if __name__ == "__main__":
    sys.exit(main())
