# ruff: noqa: RUF001 - Chinese punctuation is meant
"""What audits write into audit.json, in English, and what it is in Chinese; {1} is what the first brackets held."""

from __future__ import annotations

import re

NO_VERDICT = "There is no verdict: "
BROKE_DOWN = " broke down"
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
    r"The attack '(.+)' made a single pass: whether a longer one would leak more is not known\.": (
        "攻击 “{1}” 只训练了一轮：更长的攻击是否会泄露更多尚不可知。"
    ),
    r"The attack '(.+)' gained from every growth it was allowed: a larger one would leak more\.": (
        "攻击 “{1}” 允许的每次扩大都带来改进：更大的攻击会泄露更多。"
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
    r"Nothing is known about the attacker's pictures that could be inferred\.": "攻击者的图片没有可供推断的已知属性。",
    r"Membership inference needs pictures the model was trained on\. Pass train= to AuditData\.": (
        "成员推断需要模型训练时用过的图片：请将 train= 传给 AuditData。"
    ),
    r"The feature has (\d+) values, too many for least squares\.": "特征有 {1} 个值，对最小二乘来说太多。",
    r"The edge half passes no gradient on, so it cannot be searched\. Where its code detaches tensors or uses "
    r"torch\.no_grad, let it not\.": (
        "边缘部分不传递梯度，因此无法搜索：如果其代码分离张量或使用 torch.no_grad，请去掉。"
    ),
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
    r"The worst case is over the first (?:(\d+) pictures|picture), which every attack looked at\.": (
        "最坏情况只涉及所有攻击都看过的前几张图片（{1}）。"
    ),
    r"The edge half gives other features each time: no seed fixes them, and another run gives other numbers\.": (
        "边缘部分每次给出不同的特征：没有种子能固定它们，再次运行会得到不同的数值。"
    ),
    r"The model states noise \((.+)\), but two transmissions of a picture differ by less than a thousandth of what "
    r"pictures differ by: such noise hides nothing\.": (
        "模型声明了噪声（{1}），但同一图片两次传输的差别不到图片之间差别的千分之一：这样的噪声什么也隐藏不了。"
    ),
    r"The run was trained on (.+); the pictures under attack are those of (.+)\.": (
        "该运行以 {1} 训练；受攻击的是 {2} 的图片。"
    ),
    r"Class (\d+) is '(.+)' to the run and '(.+)' in (.+): unless both mean the same, accuracy and recon_acc mean "
    r"nothing\.": "类别 {1} 在该运行中是 “{2}”，在 {4} 中是 “{3}”：除非两者含义相同，准确率与 recon_acc 没有意义。",
    r"(\d+) of the (\d+) test pictures of (.+) were trained on\.": "{3} 的 {2} 张测试图片中有 {1} 张曾用于训练。",
    r"The measure '(.+)' is left out, because it failed: (.+)\.": "度量 “{1}” 失败，已略去：{2}。",
    r"No attack of this audit made pictures: there is no worst case, and no verdict on pictures\.": (
        "此审计中没有攻击生成图片：没有最坏情况，也没有关于图片的结论。"
    ),
    r"The weights were hidden: an attacker who has the device may do more, and no bound is known\. The accuracy and "
    r"recon_acc are those of a least-squares classifier on what the endpoint sends\.": (
        "权重不可见：拥有设备的攻击者或许能做到更多，也没有已知的理论界。准确率与 recon_acc "
        "来自以端点所发特征拟合的最小二乘分类器。"
    ),
    r"The weights were hidden: an attacker who has the device may do more, and no bound is known\. The accuracy and "
    r"recon_acc are those of a least-squares classifier on what the endpoint sends\. It sends other features each "
    r"time: another audit gives other numbers\.": (
        "权重不可见：拥有设备的攻击者或许能做到更多，也没有已知的理论界。准确率与 recon_acc "
        "来自以端点所发特征拟合的最小二乘分类器。端点每次发送不同的特征：再次审计会得到不同的数值。"
    ),
    # why there is no verdict
    r"the model sends something else for a picture alone, as a device does, than in the batches that were attacked": (
        "模型对单张图片（如设备所做）发送的内容与受攻击的批次不同"
    ),
    r"the model sends something else than when the audit began, for it keeps a state between transmissions or, behind "
    r"an address, was exchanged": "模型发送的内容与审计开始时不同，因为它在传输之间保有状态，或在其地址之后被更换",
    r"no attack, in its short form, could break a model that sends the picture itself": (
        "没有一种攻击（以其简短形式）能攻破直接发送图片的模型"
    ),
    r"on a model that sends nothing the attacks gave no answer, or a better one than guessing": (
        "对什么也不发送的模型，攻击没有给出答案，或给出了比猜测更好的答案"
    ),
    r"the mean picture of the class that .+ names scores MSE (\S+), and all attacks together (\S+), so they read less "
    r"from the feature than .+ does": (
        "模型所判类别的平均图片得到 MSE {1}，而所有攻击合起来为 {2}：它们从特征中读到的比分类器还少"
    ),
}


def in_chinese(sentence: str) -> str:
    """An audit's sentence in Chinese; one that we do not know stays as it is."""
    if sentence.startswith(NO_VERDICT):
        reasons = sentence.removeprefix(NO_VERDICT).removesuffix(".").split("; ")
        return f"没有结论：{'；'.join(in_chinese(reason) for reason in reasons)}。"
    if sentence.endswith(BROKE_DOWN):
        return f"{sentence.removesuffix(BROKE_DOWN).replace(' and ', '、')} 失败"
    for pattern, chinese in AUDIT_SENTENCES.items():
        match = re.fullmatch(pattern, sentence)
        if match:
            return chinese.format(match[0], *match.groups("1"))
    return sentence
