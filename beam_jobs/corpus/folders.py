"""The folders of a job that reads a dump unit by unit."""

from dataclasses import dataclass

from beam_jobs.core import storage

UNIT_NAME = r"\d{4,}-\d{5,}"
"""Pattern of `work_units.Unit.name`."""
WORK_NAME = "_work-[0-9a-f]{16}"
"""Pattern of the name of the folder in which a job keeps what it has done, until it ends."""


@dataclass(frozen=True)
class Folders:
    """The output folder of a run and, below its work folder, what is removed when it is done."""

    output: str
    work: str

    @property
    def cuts(self) -> str:
        return storage.join_path(self.work, "cuts")

    @property
    def prepared(self) -> str:
        return storage.join_path(self.work, "prepared")

    @property
    def written(self) -> str:
        return storage.join_path(self.work, "written")

    @property
    def seen(self) -> str:
        return storage.join_path(self.work, "seen")

    @property
    def withheld(self) -> str:
        """Index of the evaluation files."""
        return storage.join_path(self.work, "withheld")

    @property
    def matches(self) -> str:
        """What reviews share with the corpus's own dev and test reviews."""
        return storage.join_path(self.work, "matches")

    def clear_other_runs(self, results: str) -> None:
        """Remove what another job left in the output folder, and what killed writers of this one
        left.

        `results` is the pattern of the names of what such a job leaves.
        """
        rejects = storage.join_path(self.output, "rejects")
        for folder in (self.output, rejects):
            storage.remove_temporary_files(folder)
        if not storage.exists(self.work):
            storage.remove_matching(rejects, rf"{UNIT_NAME}\.jsonl")
            storage.remove_matching(self.output, f"{WORK_NAME}|{results}")
