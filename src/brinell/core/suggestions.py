"""Suggestions for names that do not exist: the nearest names of the right vocabulary, by spelling and by synonyms of the field.

Case, hyphens and underscores make no difference. Two names are as far apart as the number of letters that one must swap with a
neighbour, leave out, add or replace. A synonym, such as epsilon or num_steps, suggests the name that the vocabulary has for it.
"""

import re
from collections.abc import Callable, Iterable, Iterator

MOST_SUGGESTED = 3
"""Largest number of names in a suggestion: those that are equally near."""
SHORTEST_PART = 3
"""Least length of a word for which a name that contains it, or that it contains, is near."""

SYNONYMS = """
eps budgets epsilon epsilons budget radius radii perturbation perturbation_budget max_norm
norm distance p p_norm lp lp_norm ord order metric threat threat_model norm_type
attack attacks adversary attack_name attack_method version algorithm method
method methods explainer explainers attribution attributions saliency
recipe defence defense algorithm training trainer method objective
kind corruption corruptions distortion distortions perturbations transform
detector detectors detection
model models network net classifier estimator module arch architecture source
surrogate proxy substitute proxy_model surrogate_model source_model white_box
data dataset datasets inputs images signals features x_test test_data loader data_dir x
y labels label targets y_test y_true ground_truth classes_of_samples
train train_data training_data trainset train_set x_train train_dataset
test test_data testset test_set test_dataset
samples n_samples num_samples nb_samples n_examples num_examples examples max_samples n limit
select selection sampling sampler subset shuffle
seed random_state random_seed rng manual_seed rng_seed
batch_size batch bs batches minibatch mini_batch_size per_device_batch_size
queries max_queries query_budget n_queries num_queries query_limit budget max_evals
device gpu cuda accelerator device_name use_gpu no_cuda
precision dtype amp fp16 bf16 half mixed_precision
targeted target target_class target_label targets y_target
reject_class rejection reject background_class abstain
preprocessing preprocess preprocessor processor transform transforms normalize normalization
mean means mu
std stds sd stdev sigma scale
answers output_type activation from_logits
out output outdir output_dir output_folder out_dir save_dir save_path save folder path dir
resume proceed restart resume_from
trust trust_remote_code trusted allow_code
progress progress_bar verbose tqdm log
quiet silent no_progress
verbose debug trace log_level
json format output_format as_json
run folder run_dir run_folder results path
shard rank world_size part
epochs n_epochs num_epochs nb_epochs max_epochs
weight_decay wd l2_penalty
optimizer optimiser optim opt
severity severities strength intensity magnitude level levels
robust min_robust min_robust_accuracy robust_accuracy threshold at_least
clean min_clean clean_accuracy min_accuracy
baseline reference previous base
steps num_steps n_steps nb_steps nb_iter n_iter num_iter iterations num_iterations max_iterations max_iter iters niter iter
    max_steps nsteps epochs
step_size alpha lr learning_rate eps_step eps_iter eta stepsize rel_stepsize abs_stepsize relative_step_size
rate lr learning_rate step_size
restarts n_restarts num_restarts num_random_init nb_restarts random_restarts starts
random_start rand_init random_init rand_start
momentum decay decay_factor mu
loss criterion loss_fn loss_type objective
targets n_target_classes num_targets n_targets target_classes
confidence kappa
init_c initial_const c initial_constant
searches binary_search_steps search_steps
p_init p init_p
sigma fd_eta noise_std std
draws samples n_samples eot_iter eot num_samples population
weights checkpoint ckpt state_dict weight pretrained params parameters checkpoint_path
classes num_classes n_classes nb_classes class_names num_labels
kind type modality data_type domain task
split subset partition part train
layout channels channel_order data_format channels_last channels_first format
bounds clip_values range value_range clip min_max
size resolution image_size img_size input_size resize
label target label_column class_column y
output output_key head logits_key
frequency fs sampling_rate sample_rate sr hz
layer target_layer target_layers layer_name
pgd projected_gradient_descent projected_gradient madry adversarial_training at pgd_at
bim i_fgsm ifgsm basic_iterative basic_iterative_method iterative_fgsm
fgsm fast_gradient fast_gradient_sign fast_gradient_method fast_gradient_sign_method fgm ffgsm
fgsm_rs free fast_adversarial_training rs_fgsm fast_at
cw carlini carlini_wagner c&w carlini_wagner_l2 carlini_l2
ead elastic_net elasticnet elastic_net_attack
fmn fast_minimum_norm
ddn decoupled_direction_norm
fab fast_adaptive_boundary boundary boundary_attack
hop_skip_jump hsj hsja boundary_attack_plus boundary boundary_attack
mi_fgsm mifgsm momentum_iterative momentum_iterative_method mim
standard autoattack auto_attack aa
apgd_ce auto_pgd autopgd apgd auto_projected_gradient_descent
square square_attack
sparse_rs sparse l0_rs
black_box blackbox score_based decision_based
linf inf infinity l_inf linfinity max chebyshev sup
l2 2 euclidean l_2
l1 1 manhattan taxicab l_1
l0 0 hamming sparsity l_0
embedding lpips perceptual
grad_cam gradcam cam gradcam_plus_plus grad_cam++
integrated_gradients ig intgrad integrated_gradient
kernel_shap shap lime
gradient vanilla saliency vanilla_gradient input_gradient gradients
guided_backprop guided_backpropagation gbp
smoothgrad smooth_gradient noise_tunnel
plain natural clean none erm vanilla
jpeg jpg jpeg_compression compression
image_folder imagefolder imagenet folder images directory pictures
video_folder videos videofolder clips ucf101
npz numpy npy array arrays
table csv tabular parquet tsv excel
wfdb physionet ecg ptbxl ptb_xl mit_bih mitdb
hf huggingface hugging_face transformers huggingface_hub
torch pytorch python jit torchscript
sklearn scikit_learn scikit skops
onnx onnxruntime ort
http https url kserve triton api rest
audit attack evaluate evaluation test eval assess benchmark_model robustness run scan check_model adversarial start
harden train defend adversarial_training finetune fine_tune
corrupt corruption corruptions distort noise
explain attribute saliency explanations interpret
epsilon eps budget
plugins list ls attacks models
progress status watch
gate check ci assert
report show view open page html summary
compare diff comparison
"""
"""Names of one thing in libraries and papers, on one line, which an indent continues. Each suggests the others of its line."""


def suggestion(name: str, vocabulary: Iterable[str], list_hint: str = "") -> str:
    """The end of a message about an unknown name: the nearest names of the vocabulary, and where all of them are listed."""
    names = nearest_names(name, vocabulary)
    if not names:
        return f"; {list_hint}" if list_hint else ""
    question = f", did you mean {' or '.join(word if word.startswith('--') else repr(word) for word in names)}?"
    return f"{question} {list_hint}".rstrip()


def same_names(name: str, vocabulary: Iterable[str]) -> list[str]:
    """The names of the vocabulary that are this one but for case and hyphens, or synonyms of it."""
    spellings = {word: _plain(word) for word in vocabulary}
    typed = _plain(name)
    return [word for word in spellings if spellings[word] == typed] or _by_synonym(typed, spellings, exact=True)


def nearest_names(name: str, vocabulary: Iterable[str]) -> list[str]:
    """The names of the vocabulary that somebody who wrote `name` may have meant, nearest first; empty if none is near."""
    names = list(dict.fromkeys(word for word in map(str, vocabulary) if word))
    spellings = {word: _plain(word) for word in names}
    typed = _plain(name)
    if not typed:
        return []
    distances = {word: distance for word in names if (distance := _slips(typed, spellings[word])) is not None}
    least = min(distances.values(), default=None)
    neighbours = sorted((word for word in distances if distances[word] == least), key=_unlike(typed))
    synonyms = _by_synonym(typed, spellings, exact=True)
    if synonyms and least != 0:
        neighbours = [*synonyms, *(neighbours if least == 1 else [])]
    candidates = neighbours or _by_synonym(typed, spellings, exact=False) or _by_part(name, names)
    return list(dict.fromkeys(candidates))[:MOST_SUGGESTED]


def _unlike(typed: str) -> Callable[[str], tuple[bool, int]]:
    """Key by which equally distant names are sorted: those with the same first letter first, then those of a like length."""

    def key(word: str) -> tuple[bool, int]:
        plain = _plain(word)
        return plain[:1] != typed[:1], abs(len(plain) - len(typed))

    return key


def _plain(name: str) -> str:
    """A name in lower case without hyphens, underscores and spaces; an accident of writing never counts as a letter."""
    return re.sub(r"[\s_\-]+", "", name).casefold()


_LINES = tuple(tuple(map(_plain, line.split())) for line in SYNONYMS.strip().replace("\n ", " ").splitlines())
"""The synonyms as they are compared."""


def _slips(first: str, second: str) -> int | None:
    """The distance between two plain names; None if it is too large for one to be a slip for the other."""
    longest = max(len(first), len(second))
    most = max(1, longest // 3) if longest > 1 else 0
    if abs(len(first) - len(second)) > most:
        return None
    distance = edit_distance(first, second)
    return distance if distance <= most else None


def edit_distance(first: str, second: str) -> int:
    """Least number of letters to leave out, add, replace or swap with a neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        following = [i]
        for j, other in enumerate(second, 1):
            cost = min(row[j] + 1, following[j - 1] + 1, row[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == second[j - 2] and first[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            following.append(cost)
        before, row = row, following
    return row[-1]


def _by_synonym(typed: str, spellings: dict[str, str], *, exact: bool) -> list[str]:
    """The names that the vocabulary has for what a synonym means; without `exact` the synonym may be misspelled by a letter."""
    nouns = {plain: word for word, plain in reversed(spellings.items())}

    def means(synonym: str) -> bool:
        """True if the typed name is this synonym."""
        return typed == synonym or (not exact and min(len(typed), len(synonym)) > SHORTEST_PART and _slips(typed, synonym) == 1)

    ranked = [(line.index(plain), nouns[plain]) for line in _LINES if any(map(means, line)) for plain in line if plain in nouns]
    return [word for _, word in sorted(ranked, key=lambda pair: pair[0])]


def _by_part(name: str, names: list[str]) -> list[str]:
    """The shortest names that begin with `name` or hold one of its words, or whose words `name` holds."""
    typed, words = _plain(name), set(_words(name))
    if len(typed) < SHORTEST_PART:
        return []
    beginning = [word for word in names if _plain(word).startswith(typed)]
    containing = [word for word in names if words & set(_words(word))]
    return sorted(beginning or containing, key=len)


def _words(name: str) -> Iterator[str]:
    """The words of a name that are long enough to identify it."""
    return (word for word in re.split(r"[\s_\-./]+", name.casefold()) if len(word) >= SHORTEST_PART)
