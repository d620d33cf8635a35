"""Word vectors: read from every kind of file alike, and refused in words where a file is no such thing."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from understill.data.vectors import read_vectors, vector_size
from understill.errors import UserError

Table = dict[str, NDArray[np.float32]]

WORDS = ("the", "parcel", "Paris", "PARIS", "n't", "배송", "naïve", ".")


def table(words: tuple[str, ...] = WORDS, size: int = 5) -> Table:
    rng = np.random.default_rng(0)
    return {word: rng.normal(size=size).astype(np.float32) for word in words}


def lines(vectors: Table, end: str = "") -> str:
    return "".join(f"{word} {' '.join(map(repr, map(float, row)))}{end}\n" for word, row in vectors.items())


def size_of(vectors: Table) -> int:
    return len(next(iter(vectors.values())))


def glove(path: Path, vectors: Table) -> None:
    path.write_text(lines(vectors), encoding="utf-8")


def word2vec_text(path: Path, vectors: Table) -> None:
    path.write_text(f"{len(vectors)} {size_of(vectors)}\n{lines(vectors)}", encoding="utf-8")


def with_tabs(path: Path, vectors: Table) -> None:
    path.write_text(lines(vectors).replace(" ", "\t"), encoding="utf-8")


def with_a_mark(path: Path, vectors: Table) -> None:
    path.write_text(f"{len(vectors)} {size_of(vectors)}\r\n{lines(vectors, chr(13))}", encoding="utf-8-sig")


def fasttext(path: Path, vectors: Table) -> None:
    path.write_text(f"{len(vectors)} {size_of(vectors)}\n{lines(vectors, ' ')}", encoding="utf-8")


def word2vec_binary(path: Path, vectors: Table, end: bytes = b"\n") -> None:
    rows = b"".join(word.encode() + b" " + row.tobytes() + end for word, row in vectors.items())
    path.write_bytes(f"{len(vectors)} {size_of(vectors)}\n".encode() + rows)


def gensim_binary(path: Path, vectors: Table) -> None:
    word2vec_binary(path, vectors, b"")


def packed(path: Path, vectors: Table) -> None:
    word2vec_binary(path, vectors)
    path.write_bytes(gzip.compress(path.read_bytes()))


def matrix(path: Path, vectors: Table) -> None:
    path.mkdir()
    np.save(path / "vectors.npy", np.stack(list(vectors.values())))
    pq.write_table(pa.table({"word": list(vectors)}), path / "words.parquet")


KINDS = (glove, word2vec_text, with_tabs, with_a_mark, fasttext, word2vec_binary, gensim_binary, packed, matrix)


@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__)
def test_every_kind_of_file_gives_the_same_vectors(write: Callable[[Path, Table], None], tmp_path: Path) -> None:
    vectors, path = table(), tmp_path / "vectors"
    write(path, vectors)
    wanted = {"parcel", "배송", "n't", "absent"}
    read = read_vectors(path, wanted)
    assert read.size == vector_size(path) == 5
    assert read.by_word.keys() == wanted - {"absent"}
    for word, row in read.by_word.items():
        assert np.array_equal(row, vectors[word]), word


@given(rows=st.integers(1, 40), size=st.integers(1, 9), seed=st.integers(0, 999))
def test_binary_files_of_any_content_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: int, size: int, seed: int
) -> None:
    raw = np.random.default_rng(seed).integers(0, 256, (rows, size, 4), np.uint8)
    raw[..., 3] &= 0x3F  # no NaN and no infinity
    vectors = {f"w{number}": row.copy().view("<f4").ravel() for number, row in enumerate(raw)}
    path = tmp_path_factory.mktemp("v") / "v.bin"
    word2vec_binary(path, vectors)
    read = read_vectors(path, set(vectors))
    assert all(np.array_equal(read.by_word[word], row) for word, row in vectors.items())


def test_a_word_in_its_own_case_goes_before_the_first_in_another(tmp_path: Path) -> None:
    vectors = table()
    glove(tmp_path / "v.txt", vectors)
    assert np.array_equal(read_vectors(tmp_path / "v.txt", {"paris"}).by_word["paris"], vectors["Paris"])
    vectors["paris"] = vectors["."] * 2
    glove(tmp_path / "v.txt", vectors)
    assert np.array_equal(read_vectors(tmp_path / "v.txt", {"paris"}).by_word["paris"], vectors["paris"])


def test_a_word_with_blanks_is_not_taken_for_its_beginning(tmp_path: Path) -> None:
    vectors = table()
    other = {". . .": vectors["the"], **vectors}
    (tmp_path / "v.txt").write_text(lines({"the": vectors["the"]}) + lines(other), encoding="utf-8")
    assert np.array_equal(read_vectors(tmp_path / "v.txt", {"."}).by_word["."], vectors["."])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a file of word vectors"),
        (b"the parcel never came\n", "not a file of word vectors"),
        ((793712314).to_bytes(4, "little") + b"rest", r"a fastText model.*\.vec"),
        (b"the 1 2 3\nparcel 1 2\n", "line 2 does not hold 3 numbers"),
        (b"2 3\nthe 1 2 3\nparcel 1 x 3\n", "line 3 does not hold 3 numbers"),
        (b"the 1 2 3\nparcel 1 nan 3\n", '"parcel" is not finite'),
        (b"9 3\nparcel " + np.ones(3, "<f4").tobytes(), "ends after 1 of 9 words"),
        (b"9 3\nparcel 1 2 3\nthe 1 2 3\n", "ends after 2 of 9 words"),
        (b"1 4\nparcel 1 2 3\n", "line 1 says 4 numbers for each word, line 2 holds 3"),
        (b"1 2\nparcel 1 2 3\n", "line 1 says 2 numbers for each word, line 2 holds 3"),
        (b"1 0\nparcel\n", "line 1 says 0 numbers"),
        (b"1 2\nparcel " + np.ones(3, "<f4").tobytes() + b"\n", "holds more than 1 words of 2 numbers"),
        (gzip.compress(b"the 1 2 3\n" * 99, mtime=0)[:-12], "cannot be read"),
    ],
    ids=[
        "empty",
        "prose",
        "fasttext",
        "short",
        "letters",
        "nan",
        "cut",
        "cut text",
        "wide",
        "narrow",
        "none",
        "over",
        "gzip",
    ],
)
def test_what_holds_no_vectors_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "v", {"parcel"})


def test_what_a_folder_has_for_words_is_read_as_text(tmp_path: Path) -> None:
    matrix(tmp_path / "v", table(("the", "parcel", "7")))
    pq.write_table(pa.table({"word": [b"the", None, b"7"]}), tmp_path / "v" / "words.parquet")
    assert read_vectors(tmp_path / "v", {"the", "parcel", "7"}).by_word.keys() == {"the", "7"}


def test_a_folder_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    matrix(tmp_path / "v", table())
    np.save(tmp_path / "v" / "vectors.npy", np.zeros((3, 5), np.float32))
    with pytest.raises(UserError, match="8 words do not fit"):
        read_vectors(tmp_path / "v", {"parcel"})
    np.save(tmp_path / "v" / "vectors.npy", np.full((8, 5), "x"))
    with pytest.raises(UserError, match=r"8 words do not fit vectors of shape \(8, 5\), <U1"):
        read_vectors(tmp_path / "v", {"parcel"})
    (tmp_path / "v" / "words.parquet").unlink()
    with pytest.raises(UserError, match=r"one \.npy and one \.parquet"):
        vector_size(tmp_path / "v")


def pieces(path: Path) -> NDArray[np.float32]:
    path.mkdir(exist_ok=True)
    vocabulary = {piece: number for number, piece in enumerate(["[UNK]", "par", "##cel", "the", "##s"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(path / "tokenizer.json"))
    values = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float16)
    save_file({"embeddings": values}, path / "model.safetensors")
    return values.astype(np.float32) * 0.6 / values.astype(np.float32).std()


def test_a_word_is_the_mean_of_its_scaled_pieces_and_has_no_vector_where_one_is_unknown(tmp_path: Path) -> None:
    values = pieces(tmp_path)
    read = read_vectors(tmp_path, {"parcels", "the", "배송", "par배송", "[PAD]"})
    assert read.size == vector_size(tmp_path) == 7
    assert read.by_word.keys() == {"parcels", "the"}
    np.testing.assert_allclose(read.by_word["parcels"], values[[1, 2, 4]].mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(read.by_word["the"], values[3], rtol=1e-6)
    assert read.by_word["the"].dtype == np.float32


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weights": np.ones((5, 7), np.float32)}, r"holds weights \[5, 7\]; wanted: embeddings of 5 pieces"),
        ({"embeddings": np.ones((4, 7), np.float32)}, r"holds embeddings \[4, 7\]; wanted"),
        ({"embeddings": np.ones((5, 7), np.int8)}, "wanted: embeddings"),
        ({"embeddings": np.ones((5, 7), np.float32), "mapping": np.ones(5, np.int64)}, "and nothing else"),
        ({"embeddings": np.full((5, 7), np.nan, np.float32)}, "not finite"),
    ],
    ids=["other", "few", "integers", "mapped", "nan"],
)
def test_a_folder_that_holds_no_vectors_of_pieces_is_refused(
    tensors: dict[str, NDArray[np.float32]], message: str, tmp_path: Path
) -> None:
    pieces(tmp_path)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path, {"the"})


def test_broken_files_of_pieces_are_refused(tmp_path: Path) -> None:
    pieces(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(UserError, match="vectors of pieces cannot be read"):
        vector_size(tmp_path)
    pieces(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read"):
        vector_size(tmp_path)
