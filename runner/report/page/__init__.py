"""The report page: one HTML file with every figure, table and record of some directories, which opens without a network.

`collect` and `overview` turn the inputs of the other reports into the values of `model`; `render` writes these as a page, and `picture`
writes each figure to a file next to it. Nothing is measured here, nor computed that another module of `runner` already defines.
"""
