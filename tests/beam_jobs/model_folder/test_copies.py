"""What a model was trained on is known again, exactly and nearly, and nothing else is."""

import numpy as np

from amazon_electra.beam_jobs.model_folder import copies

WORDS = [f"word{number}" for number in range(15)]


def draw_texts(n, seed=0, words=30):
    draw = np.random.default_rng(seed)
    return [
        " ".join(f"{w}{draw.integers(50)}" for w in draw.choice(WORDS, words)) for _ in range(n)
    ]


def change(text, places):
    words = text.split()
    for place in places:
        words[place] = "changed"
    return " ".join(words)


def test_copies_and_near_copies_are_known_and_other_texts_are_not(tmp_path):
    trained = [*draw_texts(300), "Broke at once."]
    copies.save_sketches(trained, tmp_path)
    exact = [f"  {trained[3].upper()}", "broke  at once."]
    near = [change(text, [10]) for text in trained[:100]]
    other = [*draw_texts(300, seed=1), "Broke in a week."]
    known = copies.load_trained(str(tmp_path))
    assert known.mark_copies(exact).all()
    assert known.mark_copies(near).mean() > 0.95
    assert not known.mark_copies(other).any()


def test_of_very_many_texts_the_exact_copies_are_known(tmp_path, monkeypatch):
    monkeypatch.setattr(copies, "MAX_SKETCHED", 10)
    trained = draw_texts(20)
    copies.save_sketches(trained, tmp_path)
    known = copies.load_trained(str(tmp_path))
    assert known.mark_copies(trained).all()
    assert not known.mark_copies([change(trained[0], [5])]).any()
