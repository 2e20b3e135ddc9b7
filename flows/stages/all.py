"""Every stage of the project: importing this lets a request name any of them."""

from importlib import import_module
from pkgutil import iter_modules

from amazon_electra.flows import stages

for module in iter_modules(stages.__path__, f"{stages.__name__}."):
    import_module(module.name)
