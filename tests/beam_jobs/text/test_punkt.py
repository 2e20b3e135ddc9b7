"""Punkt comes without what NLTK would bring along, and hides it from no one else."""

import subprocess
import sys


def test_workers_load_punkt_alone_and_nltk_is_whole_afterwards():
    program = (
        "import sys, beam_jobs.text.sentences, beam_jobs.shards_job\n"
        "assert not {'nltk', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "import nltk, sklearn.linear_model, scipy.stats\n"
        "from beam_jobs.text.punkt import PunktParameters\n"
        "theirs = nltk.tokenize.punkt.PunktSentenceTokenizer(PunktParameters())\n"
        "assert theirs.tokenize('It is. I say.') == ['It is.', 'I say.']\n"
        "assert nltk.probability.FreqDist('aab')['a'] == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
