# SPDX-License-Identifier: Apache-2.0
"""`python -m potl`."""

from ._cli._cli import main

if __name__ == "__main__":
    main()
