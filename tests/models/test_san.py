"""The stochastic answer network: its formulas, what must not matter to it, and which of its answers are dropped."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from understill.models.san import San, _survivors

WIDTH, OUTPUTS = 6, 3
ORDERS = [False, True]
# Of rows of 7 tokens: one between two texts, an end, and padding; a long first text; a long second one.
FIRST = torch.tensor([[0, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0], [0, 1, 0, 0, 0, 0, 0]]).bool()
SECOND = torch.tensor([[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 1, 1, 0]]).bool()

Texts = tuple[Tensor, Tensor, Tensor, Tensor]


def san(kind: torch.dtype = torch.float64, seed: int = 0, scale: float = 0.6, **options: object) -> San:
    torch.manual_seed(seed)
    made = San(WIDTH, OUTPUTS, **options).to(kind)  # type: ignore[arg-type]
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=scale)  # far from 0, where all answers would be alike; biases too
    return made


def texts(kind: torch.dtype = torch.float64, rate: float = 0.0) -> Texts:
    torch.manual_seed(1)
    return torch.randn(3, 7, WIDTH, dtype=kind), FIRST, SECOND, torch.full((3,), rate)


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def mixed(weights: list[float], vectors: list[list[float]]) -> list[float]:
    return [
        sum(weight * vector[place] for weight, vector in zip(weights, vectors, strict=True)) for place in range(WIDTH)
    ]


def gru(made: San, state: list[float], seen: list[float]) -> list[float]:
    """Cho et al.'s unit as torch's documentation writes it."""
    new = []
    for place in range(WIDTH):
        r, z, n = (
            tuple(
                dot(weight[part * WIDTH + place].tolist(), vector) + bias[part * WIDTH + place].item()
                for weight, bias, vector in (
                    (made.update.weight_ih, made.update.bias_ih, seen),
                    (made.update.weight_hh, made.update.bias_hh, state),
                )
            )
            for part in range(3)
        )
        reset, keep = 1 / (1 + math.exp(-sum(r))), 1 / (1 + math.exp(-sum(z)))
        new.append((1 - keep) * math.tanh(n[0] + reset * n[1]) + keep * state[place])
    return new


def steps_of(made: San, premise: list[list[float]], hypothesis: list[list[float]]) -> list[list[float]]:
    """Return P¹ … P^K of one row."""
    w1, w2 = made.summary.weight[0].tolist(), made.attention.weight.T.tolist()
    w3, bias = made.out.weight.tolist(), made.out.bias.tolist()
    states = [mixed(softmax([dot(w1, token) for token in hypothesis]), hypothesis)]
    result = []
    for k in range(1, made.steps + 1):
        s = states[k - 1]
        scores = []
        for token in premise:
            scores.append(sum(s[i] * w2[i][j] * token[j] for i in range(WIDTH) for j in range(WIDTH)))
        x = mixed(softmax(scores), premise)
        states.append(gru(made, s, x))
        s = states[k - 1] if made.authors_order else states[k]
        features = [
            *s,
            *x,
            *(abs(a - b) for a, b in zip(s, x, strict=True)),
            *(a * b for a, b in zip(s, x, strict=True)),
        ]
        result.append(softmax([dot(row, features) + shift for row, shift in zip(w3, bias, strict=True)]))
    return result


def reference(made: San, states: Tensor, first: Tensor, second: Tensor) -> Tensor:
    rows = []
    for row in range(len(states)):
        premise = [states[row, place].tolist() for place in range(states.shape[1]) if first[row, place]]
        hypothesis = [states[row, place].tolist() for place in range(states.shape[1]) if second[row, place]]
        result = steps_of(made, premise, hypothesis or premise)
        rows.append([math.log(sum(each[label] for each in result) / made.steps) for label in range(OUTPUTS)])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("authors", ORDERS)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_it_is_what_the_formulas_say(steps: int, authors: bool) -> None:
    made = san(steps=steps, authors_order=authors).eval()
    states, first, second, rate = texts()
    wanted = reference(made, states, first, second)
    torch.testing.assert_close(made(states, first, second, rate), wanted, rtol=1e-12, atol=1e-12)
    assert (wanted[0] - wanted[1]).abs().max() > 0.1


def test_the_orders_differ_by_one_update() -> None:
    paper, authors = san(steps=3).eval(), san(steps=3, authors_order=True).eval()
    assert not torch.allclose(paper(*texts()), authors(*texts()), atol=1e-3)
    # An update that changes nothing leaves nothing to differ by.
    for made in (paper, authors):
        torch.nn.init.constant_(made.update.bias_ih, 50.0)
    torch.testing.assert_close(paper(*texts()), authors(*texts()))


def test_one_step_over_single_tokens_has_a_closed_form() -> None:
    made = san(steps=1).eval()
    torch.manual_seed(2)
    states = torch.randn(4, 2, WIDTH, dtype=torch.float64)
    first = torch.tensor([[True, False]]).expand(4, 2)
    premise, hypothesis = states.unbind(1)
    state = made.update(premise, hypothesis)
    features = torch.cat([state, premise, (state - premise).abs(), state * premise], dim=1)
    wanted = (features @ made.out.weight.T + made.out.bias).log_softmax(1)
    torch.testing.assert_close(made(states, first, ~first, torch.zeros(4)), wanted)


@pytest.mark.parametrize("authors", ORDERS)
def test_gradients_are_right(authors: bool) -> None:
    made = san(steps=3, authors_order=authors, step_dropout=0.5).train()
    states, first, second, rate = texts(rate=0.3)
    second = second & torch.tensor([[True], [False], [True]])  # a row without a second text
    names, weights = zip(*made.named_parameters(), strict=True)

    def answer(states: Tensor, *weights: Tensor) -> Tensor:
        torch.manual_seed(3)
        inputs = (states, first, second, rate)
        out: Tensor = torch.func.functional_call(made, dict(zip(names, weights, strict=True)), inputs)
        return out

    assert torch.autograd.gradcheck(answer, (states.requires_grad_(), *weights))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("junk", [0.0, 1e30, math.nan, math.inf])
def test_padding_does_not_matter(junk: float, training: bool) -> None:
    made = san(torch.float32).train(training)
    states, first, second, rate = texts(torch.float32, rate=0.3)
    torch.manual_seed(4)
    plain = made(states, first, second, rate)
    wider = torch.full((3, 12, WIDTH), junk)
    places = torch.tensor([1, 3, 4, 5, 8, 9, 11])
    wider[:, places] = states
    masks = []
    for mask in (first, second):
        masks.append(torch.zeros(3, 12, dtype=torch.bool))
        masks[-1][:, places] = mask
    wider.masked_fill_(~(masks[0] | masks[1]).unsqueeze(2), junk)
    wider.requires_grad_()
    torch.manual_seed(4)
    padded = made(wider, *masks, rate)
    torch.testing.assert_close(padded, plain, rtol=0, atol=1e-6)
    padded.sum().backward()
    assert wider.grad is not None and wider.grad.isfinite().all()
    assert (wider.grad[~(masks[0] | masks[1])] == 0).all()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in made.parameters())


def test_a_row_does_not_depend_on_its_batch() -> None:
    made = san(torch.float32).eval()
    together = made(*texts(torch.float32))
    for row in range(3):
        alone = made(*(each[row : row + 1] for each in texts(torch.float32)))
        torch.testing.assert_close(alone, together[row : row + 1], rtol=0, atol=1e-6)
    assert made(*(each[:0] for each in texts(torch.float32))).shape == (0, OUTPUTS)


@given(st.permutations(range(7)))
@settings(max_examples=20)
def test_the_order_of_tokens_does_not_matter(order: list[int]) -> None:
    made = san().eval()
    states, first, second, rate = texts()
    moved = made(states[:, order], first[:, order], second[:, order], rate)
    torch.testing.assert_close(moved, made(states, first, second, rate))


def test_saying_everything_twice_does_not_matter() -> None:
    made = san().eval()
    states, first, second, rate = texts()
    twice = made(*(torch.cat([each, each], dim=1) for each in (states, first, second)), rate)
    torch.testing.assert_close(twice, made(states, first, second, rate))


def test_what_treats_classes_alike_finds_them_alike() -> None:
    made = san().eval()
    with torch.no_grad():
        made.out.weight[1:] = made.out.weight[0]
        made.out.bias.fill_(0.7)
    torch.testing.assert_close(made(*texts()), torch.full((3, OUTPUTS), -math.log(OUTPUTS), dtype=torch.float64))


@pytest.mark.parametrize("training", [False, True])
def test_missing_and_single_tokens_make_no_nan(training: bool) -> None:
    made = san(torch.float32).train(training)
    states = texts(torch.float32)[0].requires_grad_()
    first, second = torch.zeros(2, 3, 7, dtype=torch.bool).unbind()
    first[0, 1:4] = True  # no second text
    second[1, 2] = True  # no first text, and a second of one token; the last row has nothing at all
    out = made(states, first, second, torch.full((3,), 0.3))
    out[:, 0].sum().backward()
    assert out.isfinite().all()
    for tensor in (states, *made.parameters()):
        assert tensor.grad is not None and tensor.grad.isfinite().all()
    assert states.grad is not None and (states.grad[~(first | second)] == 0).all()


def test_without_a_second_text_the_first_is_summarised() -> None:
    made = san().eval()
    states, first, second, rate = texts()
    none = torch.zeros_like(second)
    torch.testing.assert_close(made(states, first, none, rate), made(states, first, first, rate))
    torch.testing.assert_close(made(states, first, none, rate), reference(made, states, first, none))


def test_without_a_first_text_there_is_only_nothing_to_see() -> None:
    made = san().eval()
    states, _, second, rate = texts()
    nothing = torch.cat([torch.zeros(3, 1, WIDTH).double(), states], dim=1)
    place = (torch.arange(8) == 0).expand(3, 8)
    wanted = made(nothing, place, torch.cat([torch.zeros(3, 1).bool(), second], dim=1), rate)
    torch.testing.assert_close(made(states, torch.zeros_like(second), second, rate), wanted)


@given(
    st.integers(1, 6), st.floats(0, 1), st.floats(0, 0.9), st.sampled_from([0.0, 1e-20, 1.0, 1e3, 1e12]), st.booleans()
)
@settings(max_examples=60)
def test_outputs_are_log_probabilities(steps: int, gone: float, rate: float, size: float, training: bool) -> None:
    made = san(torch.float32, steps=steps, step_dropout=gone).train(training)
    states, first, second, rates = texts(torch.float32, rate)
    states = (states * size).requires_grad_()
    out = made(states, first, second, rates)
    assert out.dtype == torch.float32 and out.isfinite().all()
    torch.testing.assert_close(out.exp().sum(1), torch.ones(3))
    out[:, 0].sum().backward()
    assert states.grad is not None and states.grad.isfinite().all()


def test_an_impossible_class_keeps_a_finite_logarithm() -> None:
    made = san(torch.float32).eval()
    with torch.no_grad():
        made.out.weight.zero_()
        made.out.bias.copy_(torch.tensor([0.0, -500.0, 0.0]))  # exp(−500) is 0 in fp32
    torch.testing.assert_close(made(*texts(torch.float32))[:, 1], torch.full((3,), -500.0 - math.log(2)))


@given(st.integers(1, 8), st.floats(0, 1), st.integers(0, 2**32))
def test_one_answer_always_survives(steps: int, rate: float, seed: int) -> None:
    torch.manual_seed(seed)
    kept = _survivors(500, steps, rate, torch.device("cpu"))
    assert kept.shape == (500, steps) and kept.any(dim=1).all()
    if rate == 0:
        assert kept.all()
    if rate == 1:
        assert (kept.sum(dim=1) == 1).all()


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 1.0])
def test_each_answer_is_dropped_at_the_rate_and_weighs_the_same_on_average(steps: int, rate: float) -> None:
    torch.manual_seed(0)
    rows = 100_000
    kept = _survivors(rows, steps, rate, torch.device("cpu")).double()
    margin = 5 / (2 * rows**0.5)  # five standard deviations, at their largest
    # It is not dropped, or all are and it is the one that stays.
    torch.testing.assert_close(
        kept.mean(0), torch.full((steps,), 1 - rate + rate**steps / steps).double(), rtol=0, atol=margin
    )
    weights = kept / kept.sum(dim=1, keepdim=True)
    torch.testing.assert_close(weights.mean(0), torch.full((steps,), 1 / steps).double(), rtol=0, atol=margin)


def test_step_dropout_averages_the_survivors_and_keeps_the_expectation() -> None:
    made = san(steps=3, step_dropout=0.6).train()
    states, first, second, _ = (each[:1] for each in texts())
    premise, hypothesis = states[0, first[0]].tolist(), states[0, second[0]].tolist()
    steps = torch.tensor(steps_of(made, premise, hypothesis))
    subsets = [[place for place in range(3) if number >> place & 1] for number in range(1, 8)]
    means = torch.stack([steps[subset].mean(0) for subset in subsets])
    count = 20_000
    torch.manual_seed(5)
    drawn = made(*(each.expand(count, *each.shape[1:]) for each in (states, first, second)), torch.zeros(count)).exp()
    distance, subset = torch.cdist(drawn, means.double()).min(dim=1)
    assert distance.max() < 1e-6 and len(subset.unique()) == len(subsets)
    torch.testing.assert_close(
        drawn.mean(0), made.eval()(states, first, second, torch.zeros(1))[0].exp(), rtol=0, atol=0.01
    )


def test_evaluation_drops_nothing() -> None:
    made, plain = san(step_dropout=0.9), san(step_dropout=0.0)
    states, first, second, rate = texts(rate=0.5)
    wanted = plain.train()(states, first, second, torch.zeros(3))
    torch.testing.assert_close(made.eval()(states, first, second, rate), wanted)
    assert not torch.allclose(made.train()(states, first, second, rate), wanted)


def test_each_row_is_dropped_at_its_own_rate() -> None:
    made = san(step_dropout=0.0)
    states, first, second, _ = texts()
    rate = torch.tensor([0.0, 0.3, 0.0])
    same = (made.train()(states, first, second, rate) - made.eval()(states, first, second, rate)).abs().amax(1) < 1e-9
    assert same.tolist() == [True, False, True]


def test_dropout_stands_where_the_authors_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = san(steps=3, step_dropout=0.0).train()
    torch.manual_seed(7)
    factor = torch.rand(WIDTH).double() + 0.5
    monkeypatch.setattr(made, "_dropout", lambda values, rate: values * factor.repeat(values.shape[-1] // WIDTH))
    states, first, second, rate = texts()
    for row in range(3):
        premise, hypothesis = states[row, first[row]], states[row, second[row]] * factor
        state = (hypothesis @ made.summary.weight[0]).softmax(0) @ hypothesis
        answers = []
        for _ in range(3):
            seen = ((premise * factor) @ made.attention(state * factor)).softmax(0) @ premise
            state = made.update(seen, state * factor)
            features = torch.cat([state, seen, (state - seen).abs(), state * seen]) * factor.repeat(4)
            answers.append(made.out(features).softmax(0))
        wanted = torch.stack(answers).mean(0).log()
        torch.testing.assert_close(made(states, first, second, rate)[row], wanted)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(40,), (4, 10)])
def test_values_are_dropped_at_the_rate_of_their_row(kind: torch.dtype, shape: tuple[int, ...]) -> None:
    count, rates = 4000, (0.05, 0.3, 0.0)
    torch.manual_seed(0)
    values = san().train()._dropout(torch.ones(3 * count, *shape, dtype=kind), torch.tensor(rates).repeat(count))
    assert values.dtype == kind
    for index, rate in enumerate(rates):
        mine = values[index::3]
        assert abs(float((mine == 0).float().mean()) - rate) <= 5 * (rate * (1 - rate) / mine.numel()) ** 0.5
        torch.testing.assert_close(mine[mine != 0], torch.full_like(mine[mine != 0], 1 / (1 - rate)))


def test_a_saved_head_answers_as_before(tmp_path: Path) -> None:
    made, other = san(seed=0).eval(), san(seed=9).eval()
    save_file(made.state_dict(), tmp_path / "head.safetensors")
    other.load_state_dict(load_file(tmp_path / "head.safetensors"))
    assert torch.equal(other(*texts()), made(*texts()))


def test_first_weights_are_small_and_leave_the_classes_equal() -> None:
    torch.manual_seed(0)
    made = San(64, OUTPUTS, spread=0.02)
    for layer in (made.summary, made.attention, made.out):
        assert 0.014 < layer.weight.std().item() < 0.026
    assert (made.out.bias == 0).all()


@pytest.mark.parametrize("training", [False, True])
def test_mixed_precision_is_near_full(training: bool) -> None:
    made = san(torch.float32, scale=0.3).train(training)
    states, first, second, rate = texts(torch.float32, rate=0.2)
    torch.manual_seed(6)
    full = made(states, first, second, rate)
    for kind in (torch.float32, torch.bfloat16):
        torch.manual_seed(6)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = made(states.to(kind), first, second, rate)
        assert mixed.dtype == torch.float32
        torch.testing.assert_close(mixed, full, rtol=0, atol=0.05)
        torch.testing.assert_close(mixed.exp().sum(1), torch.ones(3))


@pytest.mark.parametrize("training", [False, True])
def test_weights_may_be_bf16_themselves(training: bool) -> None:
    made = san(torch.float32, scale=0.3).train(training)
    states, first, second, rate = texts(torch.float32, rate=0.2)
    torch.manual_seed(6)
    full = made(states, first, second, rate)
    torch.manual_seed(6)
    short = made.bfloat16()(states.bfloat16(), first, second, rate)
    assert short.dtype == torch.float32
    torch.testing.assert_close(short, full, rtol=0, atol=0.05)


@pytest.mark.parametrize("authors", ORDERS)
def test_nothing_depends_on_values_that_the_host_would_have_to_read(authors: bool) -> None:
    made = san(torch.float32, authors_order=authors).train().to("meta")  # where there are no values
    states, *rest = (each.to("meta") for each in texts(torch.float32, rate=0.1))
    out = made(states.requires_grad_(), *rest)
    out.sum().backward()
    assert out.shape == (3, OUTPUTS) and states.grad is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_recorded_graph_of_it_replays_with_new_texts_and_new_draws() -> None:
    made = san(torch.float32, scale=0.3).train().to("cuda")
    states, first, second, rate = (each.to("cuda") for each in texts(torch.float32, rate=0.0))
    still = states.clone().requires_grad_()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        torch.autograd.grad(made(still, first, second, rate).sum(), still)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        out = made(still, first, second, rate)
        (slope,) = torch.autograd.grad(out.sum(), still)
    drawn = []
    for _ in range(8):
        graph.replay()
        drawn.append(out.detach().clone())
    assert len(torch.stack(drawn).unique(dim=0)) > 1
    torch.testing.assert_close(out.exp().sum(1), torch.ones(3, device="cuda"))
    with torch.no_grad():
        still.copy_(states.flip(0))
    rate.fill_(0.5)
    graph.replay()
    assert out.isfinite().all() and slope.isfinite().all() and not torch.equal(out, drawn[-1])
