"""Punkt comes without what NLTK would bring along, and hides it from no one else."""

import subprocess
import sys


def test_workers_do_not_load_scikit_learn():
    program = (
        "import sys, beam_jobs.text.sentences, beam_jobs.shards_job\n"
        "assert not {'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "import sklearn.linear_model, scipy.stats\n"
        "from nltk.tokenize.punkt import PunktSentenceTokenizer\n"
        "from beam_jobs.text.punkt import PunktSentenceTokenizer as ours\n"
        "assert ours is PunktSentenceTokenizer\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
