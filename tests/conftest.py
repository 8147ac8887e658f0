"""Settings for all tests."""

import os

# Before torch is loaded: threads that spin while they wait make small steps many times slower
# where cores are shared with anything else.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the cores: a thread for each
    os.environ.setdefault("OMP_NUM_THREADS", "1")
