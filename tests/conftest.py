"""Settings for all tests."""

import os

# Before torch is loaded: threads that spin while they wait make small steps many times slower
# where cores are shared with anything else.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
