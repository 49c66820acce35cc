"""Processes of a pool."""

import os
import threading
import time


def end_with(parent: int) -> None:
    """End this process once its parent has ended.

    The worker of a pool does not notice that, since it holds both ends of the pool's pipes. It
    would wait forever, and hold the lock of a folder that it has inherited.

    Args:
        parent: number of the process that has started the pool.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
