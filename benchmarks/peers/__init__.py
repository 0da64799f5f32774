"""Other systems that learn knowledge graphs, behind one small protocol, ranked by one evaluator: that of the package.

`protocol` says what a system can be asked; `ranking` ranks by its scores; `putranse` and `gake` are written here from
their papers; `pykeen_models` wraps TransE, ComplEx, ConvE and RotatE of PyKEEN, which is no dependency of the package
(`pip install --constraint constraints.txt pykeen`).
"""
