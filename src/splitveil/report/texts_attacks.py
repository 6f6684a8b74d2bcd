# ruff: noqa: RUF001 - Chinese punctuation is meant
"""What each attack does, and what its adversary has, in English and in Chinese."""

from __future__ import annotations

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
