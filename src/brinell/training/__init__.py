"""Training of classifiers that hold: recipes, the loop, its checks and its checkpoints. Nothing here audits."""
