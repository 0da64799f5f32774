"""How good a model is: metrics of link prediction."""
