"""Everything that needs torch and nothing of Beam or Prefect."""

import os

# Read once, when torch loads OpenMP. A waiting thread sleeps instead of spinning: with other work
# on the machine the spinning threads took the core from the one they waited for, and a tiny step
# became 8 times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
