"""The models: sizes worked by hand, determinism, padding, and errors for the user."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsuite.core.settings import UserError
from tasks.architectures import with_features
from tasks.models import MODELS, build_model
from tasks.shapes import DataShape

MNIST = DataShape("image", (1, 28, 28), 10)
CIFAR = DataShape("image", (3, 32, 32), 10)
DIGITS = DataShape("image", (1, 8, 8), 10)
ADULT = DataShape("tabular", (105,), 2)
TEXT = DataShape("tokens", (12,), 4, vocabulary=1000)
CHARS = DataShape("chars", (20,), 80, vocabulary=80)
WIDE = DataShape("image", (1, 8, 20), 10)

IMAGE_MODELS = ["mlp", "lenet", "cnn2", "cnn3", "cnn4", "cnn6", "resnet18"]
CASES = [
    *[(name, shape) for name in IMAGE_MODELS for shape in (DIGITS, MNIST, CIFAR, WIDE)],
    ("mlp", ADULT),
    ("lstm", CHARS),
    ("fasttext", TEXT),
]
ONE_EACH = [*[(name, DIGITS) for name in IMAGE_MODELS], ("lstm", CHARS), ("fasttext", TEXT)]


def batch(shape: DataShape, n: int = 3) -> Tensor:
    """Draw ``n`` samples of ``shape``."""
    generator = torch.Generator().manual_seed(0)
    if shape.vocabulary:
        return torch.randint(shape.vocabulary, (n, *shape.input_shape), generator=generator)
    return torch.randn(n, *shape.input_shape, generator=generator)


def conv(inputs: int, outputs: int, kernel: int) -> int:
    """Count the parameters of a convolution: a kernel per pair of channels, a bias per output."""
    return inputs * outputs * kernel * kernel + outputs


def fc(inputs: int, outputs: int) -> int:
    """Count the parameters of a linear layer."""
    return inputs * outputs + outputs


def flat(model: nn.Module) -> Tensor:
    """Return all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def layers(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Return the weight and the bias of each layer of a plain network, in order."""
    parameters = list(model.parameters())
    return list(zip(parameters[::2], parameters[1::2], strict=True))


def resnet18_size(stem: int) -> int:
    """Count ResNet-18's parameters without biases: a stem, then four stages of two blocks.

    Stage 1 is four 3x3 convolutions 64 -> 64. Each later stage has one a -> b, three b -> b and
    a 1x1 shortcut a -> b. Every convolution has a batch norm of two numbers per output channel.
    """
    total = stem * 64 + 2 * 64 + 4 * (9 * 64 * 64 + 2 * 64)
    for a, b in [(64, 128), (128, 256), (256, 512)]:
        total += 9 * a * b + 3 * 9 * b * b + a * b + 5 * 2 * b
    return total + fc(512, 10)


COUNTS = [
    # 105*32+32 = 3392, 32*16+16 = 528, 16*8+8 = 136, 8*2+2 = 18
    ("mlp", ADULT, 3_392 + 528 + 136 + 18, 4_074),
    # 784*32+32 = 25120, 528, 136, 8*10+10 = 90
    ("mlp", MNIST, 25_120 + 528 + 136 + 90, 25_874),
    # sides 28 -> 24 -> 12 -> 8 -> 4; 156 + 2416 + 30840 + 10164 + 850
    ("lenet", MNIST, conv(1, 6, 5) + conv(6, 16, 5) + fc(256, 120) + fc(120, 84) + 850, 44_426),
    # sides 32 -> 28 -> 14 -> 10 -> 5; 456 + 2416 + 48120 + 10164 + 850
    ("lenet", CIFAR, conv(3, 6, 5) + conv(6, 16, 5) + fc(400, 120) + fc(120, 84) + 850, 62_006),
    # padded: sides 8 -> 8 -> 4 -> 4 -> 2; 156 + 2416 + 7800 + 10164 + 850
    ("lenet", DIGITS, conv(1, 6, 5) + conv(6, 16, 5) + fc(64, 120) + fc(120, 84) + 850, 21_386),
    # sides 28 -> 14 -> 7, 64*49 = 3136 features; 320 + 18496 + 401536 + 1290
    ("cnn2", MNIST, conv(1, 32, 3) + conv(32, 64, 3) + fc(3136, 128) + fc(128, 10), 421_642),
    # sides 8 -> 4 -> 2, 256 features; 320 + 18496 + 32896 + 1290
    ("cnn2", DIGITS, conv(1, 32, 3) + conv(32, 64, 3) + fc(256, 128) + fc(128, 10), 53_002),
    # sides 32 -> 16 -> 8, 64*64 = 4096 features; 896 + 18496 + 40970
    ("cnn3", CIFAR, conv(3, 32, 3) + conv(32, 64, 3) + fc(4096, 10), 60_362),
    # sides 28 -> 24 -> 12 -> 8 -> 4, 1024 features; 832 + 51264 + 524800 + 5130
    ("cnn4", MNIST, conv(1, 32, 5) + conv(32, 64, 5) + fc(1024, 512) + fc(512, 10), 582_026),
    # sides 32 -> 28 -> 14 -> 10 -> 5, 1600 features; 2432 + 51264 + 819712 + 5130
    ("cnn4", CIFAR, conv(3, 32, 5) + conv(32, 64, 5) + fc(1600, 512) + fc(512, 10), 878_538),
    # padded: sides 8 -> 4 -> 2, 256 features; 832 + 51264 + 131584 + 5130
    ("cnn4", DIGITS, conv(1, 32, 5) + conv(32, 64, 5) + fc(256, 512) + fc(512, 10), 188_810),
    # sides 32 -> 16 -> 8, 4096 features; 896 + 9248 + 18496 + 36928 + 2097664 + 5130
    (
        "cnn6",
        CIFAR,
        conv(3, 32, 3)
        + conv(32, 32, 3)
        + conv(32, 64, 3)
        + conv(64, 64, 3)
        + fc(4096, 512)
        + fc(512, 10),
        2_168_362,
    ),
    # 1728+128 + 147968 + 525568 + 2099712 + 8393728 + 5130
    ("resnet18", CIFAR, resnet18_size(3 * 3 * 3), 11_173_962),
    # the stem has 9 weights per channel and not 27: 18 * 64 = 1152 fewer
    ("resnet18", MNIST, resnet18_size(3 * 3 * 1), 11_172_810),
    # ImageNet's 7x7 stem on one channel: 49*64 = 3136 instead of 1728, 1408 more than on CIFAR
    ("resnet18", DataShape("image", (1, 65, 65), 10), resnet18_size(7 * 7 * 1), 11_175_370),
    # and on three: 147*64 = 9408, 7680 more than on CIFAR
    ("resnet18", DataShape("image", (3, 96, 96), 10), resnet18_size(7 * 7 * 3), 11_181_642),
    # An LSTM layer has four gates, each with 256 x (inputs + 256) weights and two biases of 256:
    # 640 + 4*(256*264 + 512) + 4*(256*512 + 512) + 20560 = 640 + 272384 + 526336 + 20560
    (
        "lstm",
        CHARS,
        80 * 8 + 4 * (256 * (8 + 256) + 512) + 4 * (256 * (256 + 256) + 512) + fc(256, 80),
        819_920,
    ),
    # 32000 + 1056 + 132
    ("fasttext", TEXT, 1000 * 32 + fc(32, 32) + fc(32, 4), 33_188),
]


@pytest.mark.parametrize(("name", "shape", "worked", "total"), COUNTS)
def test_parameter_count(name: str, shape: DataShape, worked: int, total: int) -> None:
    """The count is the sum over the layers, worked in the comment above each row."""
    assert worked == total
    assert sum(p.numel() for p in build_model(name, shape, 0).parameters()) == total


def test_every_model_has_a_worked_count_and_a_forward_case_for_each_kind() -> None:
    """No model can be added without a test of its size and of each kind of data it takes."""
    assert list(MODELS) == [*IMAGE_MODELS, "lstm", "fasttext"]
    assert {name for name, *_ in COUNTS} == set(MODELS)
    taken = {(name, kind) for name, spec in MODELS.items() for kind in spec.kinds}
    assert {(name, shape.kind) for name, shape in CASES} == taken


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_logits_have_one_row_per_sample(name: str, shape: DataShape) -> None:
    """A batch of 3 gives (3, classes), finite."""
    with torch.no_grad():
        logits = build_model(name, shape, 0)(batch(shape))
    assert logits.shape == (3, shape.num_classes)
    assert logits.isfinite().all()


@pytest.mark.parametrize(("name", "shape"), ONE_EACH)
def test_every_parameter_gets_a_finite_gradient(name: str, shape: DataShape) -> None:
    """One backward reaches every parameter, densely."""
    model = build_model(name, shape, 0)
    torch.autograd.backward(F.cross_entropy(model(batch(shape)), torch.tensor([0, 1, 2])))
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.layout == torch.strided
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


@pytest.mark.parametrize(("name", "shape"), ONE_EACH)
def test_the_seed_alone_decides_the_weights(name: str, shape: DataShape) -> None:
    """The same seed gives the same bits whatever was drawn before, another seed other bits."""
    first = flat(build_model(name, shape, 5))
    torch.rand(7)
    assert torch.equal(first, flat(build_model(name, shape, 5)))
    assert not torch.equal(first, flat(build_model(name, shape, 6)))


@pytest.mark.parametrize("name", ["lenet", "resnet18"])
def test_the_global_generator_is_untouched(name: str) -> None:
    """Building a model neither reads nor moves torch's own generator."""
    before = torch.get_rng_state()
    build_model(name, DIGITS, 5)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_channels_last_gives_the_same_logits(name: str) -> None:
    """The memory layout of the images, or also of the weights, changes nothing but rounding."""
    model = build_model(name, CIFAR, 0).eval()
    images = batch(CIFAR)
    last = images.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = model(images)
        torch.testing.assert_close(model(last), expected, rtol=1e-4, atol=1e-5)
        model.to(memory_format=torch.channels_last)
        torch.testing.assert_close(model(last), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "shape"), ONE_EACH)
def test_the_last_parameters_are_those_of_fc(name: str, shape: DataShape) -> None:
    """The head is named ``fc`` and ends the flat vector."""
    model = build_model(name, shape, 0)
    assert [n for n, _ in model.named_parameters()][-2:] == ["fc.weight", "fc.bias"]


def test_lenet_is_the_printed_sequence() -> None:
    """LeNet written out, with ReLU before each pool, gives the same logits."""
    model = build_model("lenet", MNIST, 0)
    c1, c2, f1, f2, f3 = layers(model)
    x = batch(MNIST)
    hidden = F.max_pool2d(F.relu(F.conv2d(x, *c1)), 2)
    hidden = F.max_pool2d(F.relu(F.conv2d(hidden, *c2)), 2).flatten(1)
    hidden = F.relu(F.linear(F.relu(F.linear(hidden, *f1)), *f2))
    torch.testing.assert_close(model(x), F.linear(hidden, *f3))


def test_cnn6_pools_after_each_pair() -> None:
    """The six layers written out give the same logits."""
    model = build_model("cnn6", DIGITS, 0)
    *convs, f1, f2 = layers(model)
    x = hidden = batch(DIGITS)
    for layer, pooled in zip(convs, [False, True, False, True], strict=True):
        hidden = F.relu(F.conv2d(hidden, *layer, padding=1))
        hidden = F.max_pool2d(hidden, 2) if pooled else hidden
    hidden = F.relu(F.linear(hidden.flatten(1), *f1))
    torch.testing.assert_close(model(x), F.linear(hidden, *f2))


def test_the_input_is_not_changed() -> None:
    """The in-place ReLU works on the model's own tensors only."""
    for name in IMAGE_MODELS:
        images = batch(DIGITS)
        build_model(name, DIGITS, 0)(images)
        assert torch.equal(images, batch(DIGITS))


def fasttext_of_means() -> nn.Module:
    """Make a fastText of 5 tokens whose logits are the first 4 numbers of the mean embedding.

    Token t has the embedding (t, t, ...), except that the padding row is 100 everywhere, as a
    noisy aggregation could leave it.
    """
    model = build_model("fasttext", DataShape("tokens", (4,), 4, vocabulary=5), 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.get_parameter("embedding.weight").add_(torch.tensor([[100.0], [1], [2], [3], [4]]))
        model.get_parameter("fc1.weight").copy_(torch.eye(32))
        model.get_parameter("fc.weight").copy_(torch.eye(32)[:4])
    return model


def test_fasttext_averages_the_tokens_that_are_not_padding() -> None:
    """Tokens 1 and 4 have the mean 5/2, 1, 2, 3 and 4 the mean 10/4, and 3 alone is 3."""
    ids = torch.tensor([[1, 4, 0, 0], [1, 2, 3, 4], [0, 3, 0, 0]])
    expected = torch.tensor([[2.5], [2.5], [3.0]]).expand(3, 4)
    torch.testing.assert_close(fasttext_of_means()(ids), expected)


def test_fasttext_gives_zeros_for_padding_alone() -> None:
    """An empty text has the mean zero, and finite gradients."""
    model = fasttext_of_means()
    logits = model(torch.zeros(2, 4, dtype=torch.long))
    assert torch.equal(logits, torch.zeros(2, 4))
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_lstm_reads_the_order_and_every_step() -> None:
    """Changing the first character changes the logits of that row and of no other."""
    model = build_model("lstm", CHARS, 0)
    ids = batch(CHARS)
    other = ids.clone()
    other[1, 0] = (other[1, 0] + 1) % 80
    with torch.no_grad():
        moved = (model(ids) - model(other)).abs().amax(1)
    assert moved[1] > 0
    assert moved[0] == moved[2] == 0


def test_lstm_takes_one_alphabet_and_gives_another() -> None:
    """Characters of 90 kinds in, one of 30 classes out."""
    shape = DataShape("chars", (20,), 30, vocabulary=90)
    assert build_model("lstm", shape, 0)(torch.full((2, 20), 89)).shape == (2, 30)


def test_unknown_name_names_the_nearest_and_all() -> None:
    """A slip of the hand is answered with what was probably meant."""
    with pytest.raises(UserError) as error:
        build_model("resnet19", CIFAR, 0)
    assert str(error.value) == (
        "invalid value 'resnet19' for model: Did you mean 'resnet18'? "
        "Choices: auto, cnn2, cnn3, cnn4, cnn6, fasttext, lenet, lstm, mlp, resnet18."
    )


def test_wrong_kind_of_data_names_the_models_that_fit() -> None:
    """The sentence says what the model takes, what the data is, and what would do."""
    with pytest.raises(UserError) as error:
        build_model("lstm", CIFAR, 0)
    assert str(error.value) == (
        "invalid value 'lstm' for model: it takes chars data, but the dataset has image data. "
        "Models for image data: mlp, lenet, cnn2, cnn3, cnn4, cnn6, resnet18."
    )
    with pytest.raises(UserError, match="it takes tabular or image data, .* data: fasttext"):
        build_model("mlp", TEXT, 0)


@pytest.mark.parametrize("name", ["lenet", "cnn2", "cnn3", "cnn4", "cnn6"])
def test_too_small_images_are_refused(name: str) -> None:
    """Two pools halve a side of 4 to 1, and a side of 3 to nothing."""
    assert build_model(name, DataShape("image", (1, 4, 4), 10), 0)(torch.zeros(2, 1, 4, 4)).any()
    with pytest.raises(UserError) as error:
        build_model(name, DataShape("image", (1, 9, 3), 10), 0)
    assert str(error.value) == (
        f"invalid value '{name}' for model: it needs images of at least 4x4, but the dataset "
        "has 9x3. Models for images this small: mlp, resnet18."
    )


@pytest.mark.parametrize(("name", "shape"), ONE_EACH, ids=[name for name, _ in ONE_EACH])
def test_features_are_what_the_last_layer_reads(name: str, shape: DataShape) -> None:
    model = build_model(name, shape, 0).eval()
    x = batch(shape)
    logits, features = with_features(model, x)
    assert torch.equal(logits, model(x))
    last = model.get_submodule("fc")
    assert isinstance(last, nn.Linear)
    assert features.shape == (3, last.in_features)
    torch.testing.assert_close(F.linear(features, last.weight, last.bias), logits)
    assert not last._forward_pre_hooks


def test_a_single_pixel_is_enough_for_two_models() -> None:
    with pytest.raises(UserError, match="has 1x1. Models for images this small: mlp, resnet18."):
        build_model("cnn2", DataShape("image", (1, 1, 1), 10), 0)
