"""Steps 7 and 16 of the way of a reading: how a replica gets its model, and torch with it."""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec
from pathlib import Path

from services.errors import ModelFilesError
from services.serve.models.forecaster import Load, LoadedModel
from services.store.storage import StorageAddress, fetch_folder

__all__ = ["fetch_and_load", "import_torch", "link_torch", "load_model"]


def load_model(folder: str, schema_hash: str) -> LoadedModel:
    """Load an artefact, with its golden output checked; torch is imported here, and kept to one thread."""
    import torch

    from models import artefact

    torch.set_num_threads(1)
    try:
        model = artefact.load(Path(folder), schema_hash)
        model.verify_golden()
    except artefact.ArtefactError as error:
        raise ModelFilesError(str(error)) from error
    return model


def fetch_and_load(where: StorageAddress | None, load: Load, folder: str, schema_hash: str) -> LoadedModel:
    """``load`` a model of the storage, whose files are brought to this machine; raises as that does."""
    try:
        fetch_folder(where, Path(folder))
    except OSError as error:
        raise ModelFilesError(f"the artefact {Path(folder).name} cannot be had: {error}") from error
    return load(folder, schema_hash)


def import_torch() -> None:
    """What takes seconds of a first :func:`load_model`; other threads go on meanwhile."""
    link_torch()
    import torch

    from models import artefact  # noqa: F401

    torch.set_num_threads(1)


def link_torch() -> None:
    """Have the system link torch's libraries, where they are as on Linux; the import that follows finds them there.

    An import that links holds up every thread of the process, so every request, for half a second and more. A foreign
    call does not.
    """
    found = find_spec("torch")
    library = Path(found.origin if found and found.origin else "torch").with_name("lib") / "libtorch_python.so"
    if library.exists():
        system = ctypes.CDLL(None)
        system.dlopen.argtypes, system.dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        system.dlopen(os.fsencode(library), os.RTLD_NOW)  # where it fails, the import says why
