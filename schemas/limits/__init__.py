"""Every limit of retally: the name contains the unit, the comment says why this number.

    messages, specs                       what comes in
    epochs, tables, publishing            a job
    requests, supervision, console        the service

The rest of the code imports all of them from here: `from schemas.limits import COLUMNS_MAX`.
"""

from __future__ import annotations

from schemas.limits.console import *
from schemas.limits.epochs import *
from schemas.limits.messages import *
from schemas.limits.publishing import *
from schemas.limits.requests import *
from schemas.limits.specs import *
from schemas.limits.supervision import *
from schemas.limits.tables import *
