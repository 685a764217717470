"""`PRESETS`: published models of all kinds, whose tours are tested."""

KINDS = {
    "llama": "llama-1-7b llama-2-70b llama-3-8b llama-3.1-405b llama-3.2-1b llama-3.2-11b-vision",
    "tied, norms, biases": "gemma-2b gemma-2-9b gemma-3-12b qwen2.5-0.5b qwen3-8b olmo-2-7b phi-2",
    "old": "gpt2 gpt-j-6b openai-gpt opt-350m bloom-560m mpt-7b falcon-7b xglm-564m codegen-350m",
    "experts": "mixtral-8x7b qwen3-30b-a3b gpt-oss-20b llama-4-scout deepseek-moe-16b glm-4.5-air",
    "latent": "deepseek-v2-lite deepseek-v3 deepseek-v3.2 minicpm3-4b kimi-k2 longcat-flash",
    "recurrent": "mamba-2.8b mamba-codestral-7b falcon-mamba-7b qwen3-next-80b-a3b lfm2-1.2b",
    "hybrid": "jamba-v0.1 zamba2-7b nemotron-h-8b bamba-9b granite-4.0-h-tiny minimax-text-01",
    "other": "smollm3-3b command-r exaone-4-1.2b openelm-270m qwen2-vl-2b gemma-4-31b",
}
PRESETS = [name for names in KINDS.values() for name in names.split()]
