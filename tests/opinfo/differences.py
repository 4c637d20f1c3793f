"""Where voxgrad differs from PyTorch by decision. Each rule says once which disagreements it covers, and why."""


class Difference:
    def __init__(self, name, reason, covers):
        self.name, self.reason, self.covers = name, reason, covers


RULES = []


def covering(entry, sample, disagreement):
    """The rule that covers the disagreement, or None."""
    for rule in RULES:
        if rule.covers(entry, sample, disagreement):
            return rule
    return None
