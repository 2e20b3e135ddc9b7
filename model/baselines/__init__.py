"""What a user would have without a fine-tuned encoder: TF-IDF and logistic regression, and logistic
regression on the states of a frozen encoder. Their folders are those of a fine-tuning.
"""

TFIDF_ARM = "TF-IDF"
"""How runs and their reports call the arm of TF-IDF and logistic regression."""
