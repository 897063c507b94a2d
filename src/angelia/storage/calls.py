"""What the bus left with a unit: effects to run when it is on disk, undos to run when it is not.

What must stay true: each of them runs, whatever another one did: a fault in one must not silence those who wait for the
others.
"""

import logging
from collections.abc import Callable, Iterable

_log = logging.getLogger(__name__)


def run_effects(effects: Iterable[Callable[[], None]]) -> None:
    """After the commit, on the loop, in their order."""
    for effect in effects:
        try:
            effect()
        except Exception:  # noqa: BLE001  (see above)
            _log.exception("an effect failed; the unit it belongs to is on disk")


def run_undos(undos: Iterable[Callable[[], None]]) -> None:
    """Where nothing of the unit is stored, on the store's thread; give them the last registered first."""
    for undo in undos:
        try:
            undo()
        except Exception:  # noqa: BLE001  (see above)
            _log.exception("an undo failed; nothing of the unit it belongs to is stored")
