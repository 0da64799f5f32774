"""Evidence that the train graph itself gives for an answer: counts, walks, features, and how strongly they count."""
