"""Several processes that train one model: start them, let them agree, sum their gradients."""
