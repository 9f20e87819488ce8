"""The whole pretrain command against the transformers library's own trainer: ``make bench``.

The same tokens, model, batch size, precision, rate and number of updates; each side is a process of
its own, timed from its start to its end. Theirs has its collator for masked language models, fused
AdamW, and the examples ready in memory.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from bench import ROOT, write_text
from bench_vocabulary import Cost, measure_process

from bertpre import build_vocab, load_config, make_data
from bertpre.config.schema import BuildVocab, MakeData, TextOptions
from bertpre.data.dataset import PretrainingData
from bertpre.data.examples import read_examples
from bertpre.training.device import pick_device, pick_precision
from bertpre.training.metrics import read_metrics

ROUNDS = 3
BATCH_SIZE = 32
OURS = """
import sys
from bertpre.cli.main import main
folder, config, steps, rows = sys.argv[1:]
sets = {"global_batch_size": rows, "eval_every_steps": 1000000, "save_every_steps": 1000000}
sys.argv = ["bertpre", "pretrain", "--data", folder + "/data", "--output", folder + "/run",
    "--config", config, "--max-steps", steps, "--overwrite",
    "--set", "model.max_position_embeddings=128", "--set", "model.hidden_dropout_prob=0.1",
    "--set", "model.attention_probs_dropout_prob=0.1",
    *(word for name, value in sets.items() for word in ("--set", f"pretrain.{name}={value}"))]
main()
"""
THEIRS = """
import json, sys
import numpy as np, torch
from transformers import (BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast, Trainer, TrainingArguments)
folder, shape, steps, rows, precision = sys.argv[1:]
stored = np.load(folder + "/examples.npz")
examples = [{"input_ids": ids.tolist()} for ids in np.split(stored["ids"], stored["ends"][:-1])]
tokenizer = PreTrainedTokenizerFast.from_pretrained(folder + "/tokenizer")
model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **json.loads(shape)))
arguments = TrainingArguments(folder + "/theirs", max_steps=int(steps), learning_rate=1e-3,
    per_device_train_batch_size=int(rows), bf16=precision == "bf16", fp16=precision == "fp16",
    optim="adamw_torch_fused", report_to=[], save_strategy="no", logging_steps=10,
    disable_tqdm=True, use_cpu=not torch.cuda.is_available())
Trainer(model=model, args=arguments, train_dataset=examples,
    data_collator=DataCollatorForLanguageModeling(tokenizer)).train()
"""


def prepare(folder: Path, *, is_short: bool) -> float:
    """Make a data folder and the same examples for the other side; give their mean length."""
    text = folder / "text.txt"
    write_text(text, 3)
    build_vocab([text], folder / "tokenizer", BuildVocab(vocab_size=8000), overwrite=True)
    # A line is an example, of some 60 tokens; or lines are packed to 128.
    document = TextOptions(document="line" if is_short else "blank-line")
    make_data(
        [text],
        tokenizer=folder / "tokenizer",
        output=folder / "data",
        config=MakeData(text=document, objective="mlm", dupe_factor=1),
        overwrite=True,
    )
    data = PretrainingData(folder / "data")
    examples = read_examples(data.records, data.store, data.tokenizer, with_nsp=False)
    ends = np.cumsum(examples.lengths)
    np.savez(folder / "examples.npz", ids=examples.input_ids, ends=ends)
    return float(examples.lengths.mean())


def bench_command(name: str, folder: Path, *, steps: int, is_short: bool) -> None:
    """Both sides in turns."""
    mean_length = prepare(folder, is_short=is_short)
    config = ROOT / f"configs/{name}.yaml"
    shape = load_config(config).model
    theirs_shape = {
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": 128,
    }
    precision = pick_precision("auto", pick_device("auto"))
    costs: list[tuple[Cost, Cost]] = []
    for _ in range(ROUNDS):
        ours = measure_process(OURS, folder, config, steps, BATCH_SIZE)
        theirs = measure_process(
            THEIRS, folder, json.dumps(theirs_shape), steps, BATCH_SIZE, precision
        )
        costs.append((ours, theirs))
    elapsed, cpu = (
        float(np.median([theirs[i] / ours[i] for ours, theirs in costs])) for i in range(2)
    )
    lines = [line for line in read_metrics(folder / "run") if "matmul_peak_share" in line][1:]
    waiting, peak = (
        float(np.median([line[key] for line in lines]))
        for key in ("data_wait_share", "matmul_peak_share")
    )
    memory = [float(np.median([pair[side].mebibytes for pair in costs])) for side in range(2)]
    print(
        f"pretrain, {name}, {steps} updates of {BATCH_SIZE} examples of {mean_length:.0f} tokens: "
        f"{elapsed:.2f} times the library's trainer, {cpu:.2f} times by processor time; "
        f"{waiting:.1%} of the time waiting for examples, {peak:.0%} of the matmul peak, "
        f"{memory[0]:.0f} MiB against {memory[1]:.0f}",
        flush=True,
    )


def main(steps: int) -> None:
    """Print a line for each size and kind of text."""
    with tempfile.TemporaryDirectory() as name:
        for preset, is_short in itertools.product(("tiny", "mini"), (False, True)):
            bench_command(preset, Path(name), steps=steps, is_short=is_short)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
