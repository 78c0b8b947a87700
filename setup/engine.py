"""The engine of retally, as a wheel has it: `jobs`, `schemas` and `service` are in this package.

So other packages may have these names too. `retally`, and what it starts, finds ours first. Your
own program, such as a test of an aggregate class, finds them after `import retally_engine`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)


def main() -> int:
    """Run the command `retally`."""
    path = filter(None, [HERE, os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    from jobs.cli.main import main as run

    return run()
