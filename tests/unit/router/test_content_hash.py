from router.content_hash import content_hash

BASE = {"tenant": "t", "fingerprint": "f", "dtype": "bfloat16", "quantization": None, "max_tiles": 16}


def test_whatever_changes_an_embedding_changes_the_hash():
    variants = [
        {},
        {"tenant": "u"},
        {"fingerprint": "g"},
        {"dtype": "float32"},
        {"quantization": "fp8"},
        {"max_tiles": 1},
    ]
    hashes = [content_hash(b"picture", **(BASE | change)) for change in variants]
    hashes.append(content_hash(b"other", **BASE))
    assert len(set(hashes)) == 7


def test_equal_pictures_have_equal_names():
    assert content_hash(b"picture", **BASE) == content_hash(b"picture", **BASE)
    assert len(content_hash(b"", **BASE)) == 64
