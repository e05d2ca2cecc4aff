"""Events as datasets of Parquet and WebDataset."""
