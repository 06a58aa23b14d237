"""The topic classifier of Keras' Reuters example in PyTorch: one hidden layer of 512, ReLU, dropout.

https://github.com/keras-team/keras/blob/2.3.1/examples/reuters_mlp.py, on 10,000 words: 5,144,110 parameters. Weights are drawn as in Keras:
uniformly (Glorot and Bengio 2010), biases zero.
"""

from torch import nn

HIDDEN = 512


def build(words, topics, dropout):
    """Build a network for (batch, words) bags of words in fp32 that gives (batch, topics) scores."""
    net = nn.Sequential(nn.Linear(words, HIDDEN), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.Linear(HIDDEN, topics))
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return net
