# ruff: noqa: RUF001 - Chinese punctuation is meant
"""What each attack does, what its adversary has, and the sentences of an audit, in English and in Chinese."""

from __future__ import annotations

import re

ATTACK_TEXTS: dict[str, tuple[str, str]] = {
    "attack.decoder": (
        "Trains a residual network to turn features back into pictures, and applies it to features it has never seen.",
        "训练一个残差网络，把特征变回图片，再用于从未见过的特征。",
    ),
    "attack.decoder_strong": (
        "Lets several kinds of decoders race, grows the best until its error stops falling, and lets all of them vote.",
        "让多种解码器竞赛，将最优者不断加大直至误差不再下降，最后由它们加权投票。",
    ),
    "attack.linear": (
        "Least squares from what was sent to the picture.",
        "由所发送内容到图片的最小二乘。",
    ),
    "attack.average": (
        "Averages several transmissions of one picture, which removes noise, and then decodes.",
        "对同一图片的多次传输取平均以消除噪声，然后解码。",
    ),
    "attack.retrieval": (
        "Answers with those of its own pictures whose transmissions are nearest.",
        "以自己图片中传输最接近的若干张作答。",
    ),
    "attack.optimize": (
        "Knows the model: searches the smooth picture whose feature matches best.",
        "掌握模型：搜索特征最匹配的平滑图片。",
    ),
    "attack.refine": (
        "Knows the model: starts the same search at a decoder's answer.",
        "掌握模型：从解码器的结果开始同样的搜索。",
    ),
    "attack.gan": (
        "Trains a decoder together with a critic that knows what real pictures look like.",
        "训练解码器，并由了解真实图片的判别器监督。",
    ),
    "attack.prior": (
        "Knows the model: searches among pictures that a generative model of its own pictures can make.",
        "掌握模型：在由自己图片训练的生成模型所能产生的图片中搜索。",
    ),
    "attack.substitute": (
        "Does not know the device's half: imitates it with the server's half and its own pictures, then decodes.",
        "不掌握设备端：借助服务器端和自己的图片仿造它，然后解码。",
    ),
    "attack.membership": (
        "Asks of each candidate picture whether the model was trained on it.",
        "判断每张候选图片是否用于训练该模型。",
    ),
    "attack.attribute": (
        "Reads properties of the picture from what was sent, and from its reconstruction.",
        "由所发送内容及其还原图片读出图片的属性。",
    ),
    "threat.features": ("One transmission of each picture under attack.", "每张受攻击图片的一次传输。"),
    "threat.repeats_of": (
        "Further transmissions of the same pictures: {count} of each in all.",
        "同一图片的多次传输：每张共 {count} 次。",
    ),
    "threat.repeats": ("Further transmissions of the same pictures.", "同一图片的多次传输。"),
    "threat.queries": (
        "What the device sends for pictures of the attacker's own choice.",
        "设备对攻击者自选图片所发送的内容。",
    ),
    "threat.weights": ("Both halves of the model, with gradients.", "模型的两半，包括梯度。"),
    "threat.cloud": ("The server's half of the model.", "模型的服务器端一半。"),
    "threat.auxiliary": ("Pictures of its own, from the same world.", "攻击者自己的同类图片。"),
    "threat.labels": ("The labels of its own pictures.", "自己图片的标签。"),
    "threat.candidates": (
        "Candidate pictures, of which it asks whether they were trained on.",
        "候选图片：判断它们是否用于训练。",
    ),
    # What an attack spends more of along its curve
    "effort.epochs": ("Epochs of the attack", "攻击的训练轮次"),
    "effort.steps": ("Steps of the search", "搜索步数"),
    "effort.parameters": ("Parameters of the decoder", "解码器参数量"),
    "effort.any": ("Effort", "投入"),
}

ATTACK_NAMES = tuple(key.removeprefix("attack.") for key in ATTACK_TEXTS if key.startswith("attack."))

# Sentences that audits write into audit.json, in English, and what they are in Chinese; {1} is what the braces held.
AUDIT_SENTENCES: dict[str, str] = {
    r"Still improving at the end, so a longer attack would leak more: (.+)\.": (
        "结束时仍在改进，更长的攻击会泄露更多：{1}。"
    ),
    r"Made a single pass, so whether a longer one would leak more is not known: (.+)\.": (
        "只训练了一轮，更长的攻击是否会泄露更多尚不可知：{1}。"
    ),
    r"Gained from every growth that was allowed, so a larger one would leak more: (.+)\.": (
        "允许的每次扩大都带来改进，更大的攻击会泄露更多：{1}。"
    ),
    # of audits made before one sentence spoke of all attacks
    r"The attack '(.+)' was still improving when it ended: a longer one would leak more\.": (
        "攻击 “{1}” 结束时仍在改进：更长的攻击会泄露更多。"
    ),
    r"The attack '(.+)' stays behind least squares \('linear'\): it learned too little of these features, so that "
    r"what a better decoder would make of them is not known\.": (
        "攻击 “{1}” 不如最小二乘（“linear”）：它对这些特征学得太少，更好的解码器能还原多少尚不可知。"
    ),
    r"Only (\d+) pictures? (?:was|were) attacked: the intervals mean little\.": "只攻击了 {1} 张图片：区间意义不大。",
    r"The pictures hardly differ from their mean: no attack can show anything on them\.": (
        "图片与其平均几乎相同：任何攻击都无法说明问题。"
    ),
    r"Against the defence '(.+)' a knowing attacker would also use (.+)\.": (
        "针对防御 “{1}”，知情的攻击者还会使用 {2}。"
    ),
    r"Attacks of the tier '(.+)' that were not asked for: (.+)\.": "未要求运行 “{1}” 级别中的这些攻击：{2}。",
    r"Options other than those of the tier '(.+)', which are in brackets: (.+)\.": (
        "与 “{1}” 级别不同的选项（括号内为该级别的值）：{2}。"
    ),
    r"Worse than guessing the mean picture, so no evidence for the defence: (.+)\. A longer attack may do better\.": (
        "比猜平均图片还差，因此不能证明防御有效：{1}。更长的攻击可能更好。"
    ),
    r"Guessing the mean picture of the right class scores MSE (.+), and the worst case is (.+): "
    r"the attacks may have found the class and nothing else\.": (
        "猜正确类别的平均图片得到 MSE {1}，而最坏情况为 {2}：攻击可能只得到了类别，别无其他。"
    ),
    r"(\d+) of (\d+) pictures came back with a tenth of the error of guessing or less, although on average (.+) of it "
    r"is left: the average does not speak for them\.": (
        "{2} 张图片中有 {1} 张的重建误差不超过猜测误差的十分之一，而平均仍有 {3}：平均值不能代表它们。"
    ),
    r"Pictures with (.+) leak more than others: the attacks leave (.+) of the error of guessing, and (.+) over all "
    r"pictures\.": "{1} 的图片泄露更多：攻击后只剩猜测误差的 {2}，而全部图片为 {3}。",
    r"The model names the class of (.+) of the pictures, no better than always naming the most frequent one: "
    r"what such a model leaks says nothing about one that works\.": (
        "模型只识别出 {1} 的图片，不比总是猜最常见的类别更好：这样的模型泄露多少，说明不了可用的模型。"
    ),
    r"The auditor's own classifier names the class of (.+) of the pictures, no better than always naming the most "
    r"frequent one: what such a model leaks says nothing about one that works\.": (
        "审计者自己的分类器只识别出 {1} 的图片，不比总是猜最常见的类别更好：这样的模型泄露多少，说明不了可用的模型。"
    ),
    r"The settings in config\.toml are not those that this run was trained with\.": (
        "config.toml 中的设置不是该运行训练时的设置。"
    ),
    r"The weights are not those that this run ended with\.": "权重不是该运行结束时的权重。",
    r"The pictures are not those that this run was trained with: some that it was trained on may be among those under "
    r"attack\.": "图片不是该运行训练时所用的图片：受攻击的图片中可能有一些被用于训练。",
    r"Only the graphs of the artefact were attacked, because .+: an attacker who has the device may do more, and no "
    r"bound is known\.": "只攻击了产物的计算图：拥有设备的攻击者或许能做到更多，也没有已知的理论界。",
    r"It needs the (?:weights|weights of the cloud half), which .+\.": "它需要模型的权重，而此处没有。",
    r"The model declares no Gaussian noise of a fixed scale; without it no bound exists\.": (
        "模型没有声明固定尺度的高斯噪声；没有它就没有理论界。"
    ),
    r"The manifest states noise, but a bound cannot be read from the graphs alone: it needs the model in torch, with "
    r"its weights\.": "清单声明了噪声，但仅凭计算图无法得出理论界：还需要 torch 中的模型及其权重。",
    r"The noise that is sent has a standard deviation of (\S+)(?: for one of the pictures| in one of the values)?, "
    r"stated is (\S+): what rests on the stated noise does not hold\.": (
        "实际发送的噪声标准差为 {1}，而声明的是 {2}：以所声明的噪声为依据的结论不成立。"
    ),
    r"every attacker, up to the estimate of the covariances": "任何攻击者（以协方差的估计为前提）",
    r"unbiased attackers only; trained decoders are biased": "仅限无偏的攻击者；训练得到的解码器是有偏的",
    r"H\(x\) is unknown for pictures: compare factors between models, not with errors\.": (
        "图片的 H(x) 未知：只在模型之间比较该因子，不与误差比较。"
    ),
    r"Absolute, with the stated H\(x\) = (.+) nats\.": "绝对值，取所述 H(x) = {1} nats。",
    r"The attack '(.+)' reached (.+), below the proved bound (.+)\.": "攻击 “{1}” 达到 {2}，低于已证明的界 {3}。",
}


def in_chinese(sentence: str) -> str:
    """An audit's sentence in Chinese; one that we do not know stays as it is."""
    for pattern, chinese in AUDIT_SENTENCES.items():
        match = re.fullmatch(pattern, sentence)
        if match:
            return chinese.format(match[0], *match.groups())
    return sentence
