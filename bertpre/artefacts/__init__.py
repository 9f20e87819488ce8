"""Folders that stages pass on, each written completely or not at all.

An artefact is a folder whose ``manifest.json`` was written last. A manifest never contains paths,
times, host names or worker counts, so the same command always produces the same bytes.
"""

from bertpre.artefacts.files import check_output_file as check_output_file
from bertpre.artefacts.files import faults_named as faults_named
from bertpre.artefacts.files import whole_file as whole_file
from bertpre.artefacts.files import write_json as write_json
from bertpre.artefacts.files import write_text as write_text
from bertpre.artefacts.manifests import MANIFEST as MANIFEST
from bertpre.artefacts.manifests import Kind as Kind
from bertpre.artefacts.manifests import check_files as check_files
from bertpre.artefacts.manifests import fingerprint as fingerprint
from bertpre.artefacts.manifests import fingerprint_file as fingerprint_file
from bertpre.artefacts.manifests import is_artefact as is_artefact
from bertpre.artefacts.manifests import read_manifest as read_manifest
from bertpre.artefacts.manifests import write_manifest as write_manifest
from bertpre.artefacts.stages import check_output as check_output
from bertpre.artefacts.stages import check_unlocked as check_unlocked
from bertpre.artefacts.stages import empty_folder as empty_folder
from bertpre.artefacts.stages import locked as locked
from bertpre.artefacts.stages import stage_folder as stage_folder
