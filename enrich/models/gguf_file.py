"""Write a BERT-like embedder as a GGUF file for llama.cpp.

Invariants:
- The values are the model's own weights, in llama.cpp's order.
- The same weights give the same bytes.
- The file has a vocabulary only if llama.cpp requires one. It never tokenizes text, since runtimes get token ids.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from enrich.llama_library import quiet_library
from enrich.models.registry import EmbedderModel
from parsers.errors import ModelError

KINDS: Final = {"bert": 0, "xlm-roberta": 2}  # position embeddings before the first one that a token gets
POOLINGS: Final = {"mean": 1, "cls": 2, "lasttoken": 3}  # llama.h, enum llama_pooling_type
_QUANTIZED: Final = {"q8_0": 7, "q4_k_m": 15}  # llama.h, enum llama_ftype


def write_gguf(model: EmbedderModel, place: Path, target: Path, precision: str) -> None:
    """Write a GGUF file.

    Args:
        model: the model.
        place: the model's folder.
        target: the file to write.
        precision: of the matrices: ``fp32``, ``fp16``, or one of llama.cpp's own quantizations. Everything else stays
            in single precision.

    Raises:
        ModelError: when the kind of model is not supported.
        ImportError: when the library ``gguf`` is missing.
    """
    if precision in _QUANTIZED:
        whole = target.with_suffix(".whole")
        _write(model, place, whole, "fp32")
        _quantize(whole, target, precision)
        whole.unlink()
    else:
        _write(model, place, target, precision)


def _write(model: EmbedderModel, place: Path, target: Path, precision: str) -> None:
    import gguf
    from safetensors import safe_open

    configuration = json.loads((place / "config.json").read_bytes())
    kind = configuration.get("model_type", "")
    if kind not in KINDS or model.pooling not in POOLINGS:
        raise ModelError(
            f"{model.name} cannot be converted for llama.cpp: its kind is {kind!r}, its pooling {model.pooling!r}",
            f"Kinds known: {', '.join(KINDS)}; poolings: {', '.join(POOLINGS)}.",
        )
    writer = gguf.GGUFWriter(target, "bert")
    _describe(writer, model, configuration, place)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, configuration["num_hidden_layers"])
    skipped = KINDS[kind]
    [weights] = model.files_of("weights")
    with safe_open(place / weights.path, "np") as tensors:
        for name in sorted(tensors.keys()):
            bare = name.removeprefix("bert.").removeprefix("roberta.")
            known = names.get_name(bare, try_suffixes=(".weight", ".bias"))
            if known is None or bare.startswith("pooler."):
                continue
            tensor = tensors.get_tensor(name).astype(np.float32)
            if bare == "embeddings.position_embeddings.weight" and skipped:
                tensor = np.ascontiguousarray(tensor[skipped:])
            half = precision == "fp16" and tensor.ndim == 2 and not bare.startswith("embeddings.")
            writer.add_tensor(known, tensor.astype(np.float16) if half else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, model: EmbedderModel, configuration: dict[str, Any], place: Path) -> None:
    writer.add_name(model.name)
    writer.add_license(model.licence)
    writer.add_context_length(configuration["max_position_embeddings"] - KINDS[configuration["model_type"]])
    writer.add_embedding_length(configuration["hidden_size"])
    writer.add_feed_forward_length(configuration["intermediate_size"])
    writer.add_block_count(configuration["num_hidden_layers"])
    writer.add_head_count(configuration["num_attention_heads"])
    writer.add_layer_norm_eps(configuration["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_uint32("bert.pooling_type", POOLINGS[model.pooling])
    writer.add_token_type_count(configuration["type_vocab_size"])
    writer.add_vocab_size(configuration["vocab_size"])
    vocabulary = json.loads((place / model.tokenizer.path).read_bytes())["model"]
    if vocabulary.get("type") == "WordPiece":
        _add_word_pieces(writer, vocabulary["vocab"], configuration["vocab_size"])
    else:
        writer.add_tokenizer_model("no_vocab")


def _add_word_pieces(writer: Any, vocabulary: dict[str, int], size: int) -> None:
    """Return a WordPiece vocabulary as llama.cpp writes it: the beginning of a word is marked."""
    tokens = [f"[unused{number}]" for number in range(size)]
    for token, number in vocabulary.items():
        special = token.startswith("[") and token.endswith("]")
        tokens[number] = token if special else token[2:] if token.startswith("##") else f"\u2581{token}"
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("[") and token.endswith("]") else 1 for token in tokens])
    for name, add in {
        "[UNK]": writer.add_unk_token_id,
        "[SEP]": writer.add_sep_token_id,
        "[PAD]": writer.add_pad_token_id,
        "[CLS]": writer.add_bos_token_id,
    }.items():
        if name in vocabulary:
            add(vocabulary[name])


def _quantize(source: Path, target: Path, precision: str) -> None:
    llama_cpp = quiet_library()
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = _QUANTIZED[precision]
    parameters.nthread = 1
    if llama_cpp.llama_model_quantize(bytes(source), bytes(target), parameters) != 0:
        raise ModelError(f"llama.cpp could not quantize {source.name} to {precision}")
