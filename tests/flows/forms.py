"""Forms of `section.field=value` texts."""

from amazon_electra.beam_jobs.core.command_line import list_fields
from amazon_electra.beam_jobs.core.settings import parse_text
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import fill_form


def fill_parameters(settings=(), form=Parameters, **given):
    """Return a form with fields by name and by text; `a,b` is a list where a field is one."""
    fields = list_fields(form)
    for text in settings:
        path, _, value = text.partition("=")
        section, _, name = path.rpartition(".")
        chosen = parse_text(fields[path].annotation, value) if path in fields else value
        if section:
            given[section] = {**given.get(section, {}), name: chosen}
        else:
            given[name] = chosen
    return fill_form(form, **given)
