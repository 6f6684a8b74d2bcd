"""Surrogates inside other people's training loops. Each file needs its extra: splitveil[lightning], [huggingface].

In a loop of your own you need none of this: see examples/plain_loop.py.
"""
