"""Policy files: YAML in, frozen policies out, every mistake with file, line and column.

    load.py       sources, presets, `extends`; the whole set or all its mistakes
    schema.py     every key of a file and a rule: meaning, reader, default
    clauses.py    the same for the levels below
    wire.py       what goes with which protocol
    not_yet.py    what is read and checked, but not supported yet
    rules.py      the rules of a file seen together
    renaming.py   which calls a change renames
    checks.py     what may not stand together
    names.py      names, methods, arguments
    values.py     words, numbers, lists, addresses
    fields.py     the one reader of all tables
    nodes.py      YAML as a tree with places
    read.py       a file's bytes
    mistakes.py   places, mistakes, the exception that holds them all

semel.yaml is read with the same parts (settings.py).
"""

from proxy.policy_file.load import load_policies, presets_directory
from proxy.policy_file.mistakes import Mistake, Mistakes, PolicyMistakes, SettingsMistakes
from proxy.policy_file.renaming import recipe_changes

__all__ = [
    "Mistake",
    "Mistakes",
    "PolicyMistakes",
    "SettingsMistakes",
    "load_policies",
    "presets_directory",
    "recipe_changes",
]
