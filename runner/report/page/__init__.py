"""The report page: one HTML file with every figure, table and record of some directories, which opens without a network.

`collect` and `overview` turn what the other reports are made from into the values of `model`; `render` writes those as a page, and
`picture` each figure beside it. Nothing is measured or computed here that another module of `runner` defines.
"""
