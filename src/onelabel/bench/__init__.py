"""The bench: recipes, protocols, plans of runs, their results, and the papers' tables made from them."""
