"""Fine-tune an encoder on a task: `python -m model.finetune --encoder DIR|random --task NAME
--data DIR --output DIR`. `--encoder tfidf` and `--encoder frozen:DIR` fit a baseline instead.

Every learning rate is trained from the same start and the best on dev is kept: the same care for
every arm of a comparison, a random encoder included.
"""

from collections.abc import Callable
from typing import Any

from beam_jobs.core.command import main
from beam_jobs.core.files import make_writable_folder
from beam_jobs.core.settings import read_options
from model.evaluation.evaluate import evaluate_model
from model.finetuning.fit import finetune, read_current_result
from model.finetuning.request import make_request
from model.options import FinetuneOptions


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Fine-tune, evaluate if asked for, and return the result.

    A run that was killed during its evaluation does not train again.
    """
    arguments = read_options(FinetuneOptions, argv, "python -m model.finetune", __doc__)
    request = make_request(arguments)
    evaluated_in = arguments.evaluation
    result = None
    if evaluated_in:
        make_writable_folder("--evaluation", evaluated_in)
        if not (evaluated_in / "metrics.json").exists():
            result = read_current_result(request, arguments.output)
    fit: Callable[..., dict[str, Any]] = finetune
    if request.start.baseline:
        from model.baselines.fit import fit_baseline as fit  # loads scikit-learn: 2 CPU seconds
    result = result or fit(request, arguments.output, arguments.device)
    if evaluated_in:
        evaluation = evaluate_model(
            arguments.output,
            request.task,
            request.data,
            evaluated_in,
            device=arguments.device,
            cache=request.cache,
        )
        result["test"] = {name: metric["value"] for name, metric in evaluation["metrics"].items()}
    return result


if __name__ == "__main__":
    main(run)
