"""The network: backbone and head, the flat vector of weights, and its gradients."""
