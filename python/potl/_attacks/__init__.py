# SPDX-License-Identifier: Apache-2.0
"""The attack catalogue: each known cheat as a small program that builds the best forgery it
can.

`potl demo` plays them on one training run; tests/attacks proves for each that one named rule stops
it: the forgery is rejected, and accepted when that rule alone is switched off (only builds with
test hooks have the switch).
"""

from ._catalogue import catalogue
from ._scene import Attack, Forgery, Scene

__all__ = ["Attack", "Forgery", "Scene", "catalogue"]
