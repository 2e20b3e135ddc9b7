"""What `docker build` does, done in a chroot: the instructions of a Dockerfile after FROM, on top
of something that stands in for the image it begins with.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.images.chroot import Chroot, list_pip_variables
from tests.images.dockerfile import Instruction, read_instructions

ROOT = Path(__file__).parents[2]
SHELL = ["/bin/sh", "-c"]


class Image:
    """A chroot after the steps of a Dockerfile, and how its processes start."""

    def __init__(self, chroot: Chroot):
        self.chroot = chroot
        self.arguments: dict[str, str] = {}
        self.environment: dict[str, str] = {}
        self.user, self.folder = "root", "/"
        self.entrypoint: list[str] = []
        self.copied_from_stages: list[str] = []
        """What other images would have given, which nobody copied here."""

    def follow(self, instruction: Instruction, given: Mapping[str, str]) -> None:
        """Do what one instruction says.

        Raises `AssertionError` with the end of its output where a command fails, and `KeyError` for
        an instruction that no Dockerfile of ours had so far.
        """
        variables = {**self.arguments, **self.environment}
        if instruction.word == "RUN":
            self._run_step(instruction.text, {**list_pip_variables(), **variables})
            return
        words = instruction.split_words(variables)
        match instruction.word:
            case "ARG":
                name, _, default = words[0].partition("=")
                self.arguments[name] = given.get(name, default)
            case "ENV":
                self.environment.update(word.split("=", 1) for word in words)
            case "WORKDIR":
                [self.folder] = words
                self.chroot.find_path(self.folder).mkdir(parents=True, exist_ok=True)
            case "USER":
                [self.user] = words
            case "COPY":
                self._copy(words)
            case "ENTRYPOINT":
                self.entrypoint = words
            case "CMD":
                pass
            case _:
                raise KeyError(instruction.word)

    def start(self, *words: str, entrypoint: list[str] | None = None, **more: str):
        """Run a process of the image to its end, as `docker run` would; `more` are variables."""
        return self.chroot.run(
            [*(self.entrypoint if entrypoint is None else entrypoint), *words],
            user=self.user,
            folder=self.folder,
            environment={**self.environment, **more},
        )

    def _run_step(self, text: str, settings: Mapping[str, str]) -> None:
        done = self.chroot.run(
            [*SHELL, text], user=self.user, folder=self.folder, environment=settings
        )
        assert done.returncode == 0, f"RUN {text}\n{done.stdout[-3000:]}"

    def _copy(self, words: list[str]) -> None:
        *sources, to = words
        if sources[0].startswith("--from="):
            self.copied_from_stages += sources[1:]
            return
        target = self.chroot.find_path(to if to.startswith("/") else f"{self.folder}/{to}")
        into_folder = to.endswith("/") or len(sources) > 1
        for source in sources:
            if (ROOT / source).is_dir():
                unwanted = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, target, dirs_exist_ok=True, ignore=unwanted)
                continue
            goal = target / Path(source).name if into_folder or target.is_dir() else target
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, goal)


def build_image(dockerfile: str, base: Chroot, **given: str) -> Image:
    """Follow a Dockerfile below deploy/ on top of a base; `given` are its build arguments."""
    image = Image(base)
    for instruction in read_instructions(ROOT / "deploy" / dockerfile):
        if instruction.word == "FROM":
            continue
        image.follow(instruction, given)
    return image
