"""Leaves N mutants of a cosmic-ray session, the same ones each time.

    python tests/mutants/sample.py SESSION N

Left out are mutants that put `is` for `==`: whether equal words or small numbers are one object is
Python's business, not the tests'.
"""

import random
import sys

from cosmic_ray.work_db import use_db


def main() -> None:
    session, count = sys.argv[1], int(sys.argv[2])
    with use_db(session) as db:
        items = {
            (str(m.module_path), m.start_pos, m.operator_name, m.occurrence): item
            for item in db.work_items
            for m in item.mutations
            if "Eq_Is" not in m.operator_name
        }
        kept = random.Random(0).sample(sorted(items), min(count, len(items)))
        db.clear()
        db.add_work_items([items[key] for key in sorted(kept)])


if __name__ == "__main__":
    main()
