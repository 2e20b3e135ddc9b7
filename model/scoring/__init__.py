"""What a fine-tuned classifier becomes before it labels a dump: number formats and their check."""
