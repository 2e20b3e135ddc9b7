"""Our side of scoring.py, the scoring job's own functions: `scoring_ours.py SCORER TEXTS OUT`."""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))
from beam_jobs.scoring.classifier import UnitScorer, score_texts


def main() -> None:
    scorer, texts_file, output = sys.argv[1:]
    texts = json.loads(Path(texts_file).read_text())
    classifier = UnitScorer(scorer, "").load_model()
    score_texts(texts[:64], classifier)
    started = time.process_time()
    probabilities = score_texts(texts, classifier)
    seconds = time.process_time() - started
    Path(output).write_text(
        json.dumps({"seconds": seconds, "labels": probabilities.argmax(1).tolist()})
    )


if __name__ == "__main__":
    main()
