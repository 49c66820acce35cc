"""Training with several processes, on one or several machines: scripts/train_distributed.sh."""

import os
import threading
import time


def end_with(parent: int, every: float = 1.0) -> None:
    """Exit when the parent process exits, even by SIGKILL.

    Otherwise this process would continue beside the next run, in the same folder. `parent` is its
    process id, `every` the seconds between two looks.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
