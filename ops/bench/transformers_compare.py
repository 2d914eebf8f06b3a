#!/usr/bin/env python3
"""The same work through transformers, on the same card: what `translate-worker bench --shape` is held against.

Random weights of a published shape, bf16, forced lengths, sampling as the models' cards say.  Three ways: generate()
as it is, generate() with a static cache and compilation, and generate_batch() (continuous batching).  Each part says
what it could not do and goes on.  Run it in the same call as the worker's own benchmark: cards differ from day to day.

    ops/bench/transformers_compare.py [--shape 1.8b|7b] [--parts generate,compiled,batch] [--jobs 128]
"""
import argparse
import time

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.models.hunyuan_v1_dense import HunYuanDenseV1Config

SHAPES = {
    "1.8b": dict(vocab_size=120818, hidden_size=2048, num_hidden_layers=32, num_attention_heads=16,
                 num_key_value_heads=4, head_dim=128, intermediate_size=6144),
    "7b": dict(vocab_size=128167, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, intermediate_size=14336),
}
SAMPLING = dict(do_sample=True, temperature=0.7, top_p=0.6, top_k=20, repetition_penalty=1.05)


def build(shape):
    config = HunYuanDenseV1Config(**SHAPES[shape], max_position_embeddings=4096, tie_word_embeddings=True,
                                  bos_token_id=None, eos_token_id=None, pad_token_id=0)
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval()


def seconds(work):
    torch.cuda.synchronize()
    start = time.monotonic()
    work()
    torch.cuda.synchronize()
    return time.monotonic() - start


def step_ms(model, rows, context, steps, **extra):
    """Milliseconds a step: a long generation minus a short one, over the difference in steps."""
    ids = torch.randint(10, 100000, (rows, context), device="cuda")
    mask = torch.ones_like(ids)

    def run(n):
        model.generate(ids, attention_mask=mask, min_new_tokens=n, max_new_tokens=n, **SAMPLING, **extra)

    run(4)
    run(steps + 4)
    return (seconds(lambda: run(steps + 4)) - seconds(lambda: run(4))) / steps * 1e3


def part_generate(model, args):
    for rows in (1, 64, 128):
        print(f"generate, {rows} rows: {step_ms(model, rows, 240, 24):.2f} ms a step", flush=True)


def part_compiled(model, args):
    ms = step_ms(model, 1, 240, 24, cache_implementation="static")
    print(f"generate, static cache and compilation, 1 row: {ms:.2f} ms a step", flush=True)


def part_batch(model, args):
    ids = torch.randint(10, 100000, (args.jobs, 64)).tolist()
    config = GenerationConfig(max_new_tokens=48, eos_token_id=-1, pad_token_id=0, **SAMPLING)
    model.generate_batch(inputs=ids[:8], generation_config=config, progress_bar=False)
    done = {}
    took = seconds(lambda: done.update(model.generate_batch(inputs=ids, generation_config=config, progress_bar=False)))
    tokens = [len(r.generated_tokens) for r in done.values()]
    if len(tokens) != args.jobs or set(tokens) != {48}:
        raise RuntimeError(f"{len(tokens)} answers of {args.jobs}, lengths {sorted(set(tokens))}")
    print(f"generate_batch, {args.jobs} jobs, 64 in, 48 out: {args.jobs / took:.1f} jobs/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1.8b")
    parser.add_argument("--parts", default="generate,batch,compiled")
    parser.add_argument("--jobs", type=int, default=128)
    args = parser.parse_args()
    model = build(args.shape)
    print(f"transformers on {torch.cuda.get_device_name()}, shape {args.shape}, bf16, random weights", flush=True)
    for part in args.parts.split(","):
        try:
            with torch.no_grad():
                globals()["part_" + part](model, args)
        except Exception as e:  # a part that this version cannot do must not hide the others
            print(f"{part}: {type(e).__name__}: {str(e)[:200]}", flush=True)


if __name__ == "__main__":
    main()
