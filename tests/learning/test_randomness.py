"""The random numbers that a user's network draws, on the CPU and on a simulated accelerator."""

import torch

import mdmt
import mdmt.learning.randomness as randomness
from mdmt.learning.randomness import Randomness
from support.helpers import small_stream


class Cards:
    """The part of torch.cuda that the learner uses, with a generator for each card."""

    def __init__(self):
        self.generators = {}

    def of(self, device):
        return self.generators.setdefault(device, torch.Generator().manual_seed(77))

    def get_rng_state(self, device):
        return self.of(device).get_state()

    def set_rng_state(self, state, device):
        self.of(device).set_state(state)


def draw(cards, device):
    return torch.rand(1).item(), torch.rand(1, generator=cards.of(device)).item()


def test_both_generators_are_seeded_go_on_and_are_given_back(monkeypatch):
    cards = Cards()
    usual = torch.Generator
    monkeypatch.setattr(torch.cuda, "get_rng_state", cards.get_rng_state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", cards.set_rng_state)
    monkeypatch.setattr(randomness.torch, "Generator", lambda device="cpu": usual("cpu"))
    card = torch.device("cuda:1")
    ours, again = Randomness(5, card), Randomness(5, card)
    torch.manual_seed(1)
    callers = torch.get_rng_state(), cards.get_rng_state(card)
    with ours.drawn():
        first = draw(cards, card)
        halfway = {name: state.clone() for name, state in ours.state().items()}
        second = draw(cards, card)
    assert torch.equal(torch.get_rng_state(), callers[0])
    assert torch.equal(cards.get_rng_state(card), callers[1])
    assert set(halfway) == {"random", "random_cuda"}
    with again.drawn():
        assert draw(cards, card) == first
    again.load_state({**halfway, "random_xpu": torch.zeros(1)})
    with again.drawn():
        assert draw(cards, card) == second
    with again.drawn():  # goes on where it was
        assert draw(cards, card) != second


def test_a_checkpoint_of_a_graphics_card_loads_without_one(tmp_path):
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 4), "van")
    learner.randomness.states["random_cuda"] = torch.zeros(16, dtype=torch.uint8)
    learner.learn(small_stream(tasks=1)[0])
    learner.randomness.states["random_cuda"] = torch.zeros(16, dtype=torch.uint8)
    learner.save(tmp_path)
    loaded = mdmt.Learner.load(tmp_path)
    assert set(loaded.randomness.state()) == {"random"}
    assert torch.equal(loaded.randomness.state()["random"], learner.randomness.state()["random"])
