"""Where people already are: LangChain, LlamaIndex, sentence-transformers, FAISS.

Each module needs the package it is for, and says so where that is not installed.
"""
