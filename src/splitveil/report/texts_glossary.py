# ruff: noqa: RUF001 - Chinese punctuation is meant
"""The words of the glossary at the end of the page, in English and in Chinese."""

from __future__ import annotations

GLOSSARY_TEXTS: dict[str, tuple[str, str]] = {
    "glossary.title": ("How to read this", "如何阅读"),
    "glossary.attack": ("Attack", "攻击"),
    "glossary.attack_is": (
        "Somebody who holds what the device sends tries to rebuild the picture from it.",
        "持有设备所发送特征的人试图由它重建图片。",
    ),
    "glossary.mse": ("MSE", "MSE"),
    "glossary.mse_is": (
        "Mean squared difference per pixel, on pictures in [0, 1]. 0 is a perfect copy; higher is more private.",
        "每像素平均平方差，图片取值 [0, 1]。0 为完全相同；越高越私密。",
    ),
    "glossary.ssim": ("SSIM", "SSIM"),
    "glossary.ssim_is": (
        "Structural similarity, closer to what the eye sees. 1 is a perfect copy, 0 unrelated; lower is more private.",
        "结构相似度，更接近人眼感受。1 为完全相同，0 为毫不相干；越低越私密。",
    ),
    "glossary.psnr": ("PSNR", "PSNR"),
    "glossary.psnr_is": (
        "The same error on a logarithmic scale, in decibels, averaged over pictures. Lower is more private.",
        "同一误差的对数刻度，单位分贝，按图片取均值。越低越私密。",
    ),
    "glossary.floor": ("Floor", "下限"),
    "glossary.floor_is": (
        "The score of guessing without the feature: the mean of the attacker's own pictures, or of those of the right "
        "class. An attack that does no better has learnt nothing about the single picture.",
        "不看特征、仅靠猜测的得分：攻击者自己图片的平均，或其中正确类别的平均。不优于它的攻击对单张图片一无所获。",
    ),
    "glossary.protocol": ("Protocol", "协议"),
    "glossary.protocol_is": (
        "Who may use which pictures. “disjoint”: defender, attacker and test share none. “published”: defender and "
        "attacker both use all training pictures, as in the literature.",
        "谁可以使用哪些图片。“disjoint”：防御者、攻击者与测试互不重叠。“published”：双方都使用全部训练图片，与文献一致。",
    ),
    "glossary.knows": ("What the attacker knows", "攻击者知道什么"),
    "glossary.knows_is": (
        "Listed with each attack. The attacker always sees exactly what the defence sends: same noise, same precision.",
        "随每项攻击列出。攻击者看到的正是防御所发送的内容：相同的噪声，相同的精度。",
    ),
    "glossary.interval": ("Interval", "区间"),
    "glossary.interval_is": (
        "A 95 % interval over test pictures says how well one run was measured; the spread over seeds says how well "
        "the method repeats.",
        "测试图片上的 95 % 区间说明单次运行测得有多准；种子间的离散说明方法能否重复。",
    ),
    "glossary.recon_acc": ("recon_acc", "recon_acc"),
    "glossary.recon_acc_is": (
        "How often the attacked model still names the right class when it is shown the reconstruction.",
        "把还原的图片交给被攻击的模型时，它仍能认出正确类别的比例。",
    ),
    "glossary.rob_loss": ("rob_loss", "rob_loss"),
    "glossary.rob_loss_is": (
        "The conditional-entropy surrogate that training lowers. It steers training and proves nothing by itself.",
        "训练所降低的条件熵代理量。它引导训练，本身不证明任何事。",
    ),
    "glossary.closest": ("Closest for", "最接近的占比"),
    "glossary.closest_is": (
        "The share of the test pictures that this attack came closer to than every other one.",
        "在测试图片中，此攻击比其他攻击都更接近原图的比例。",
    ),
    "glossary.weight": ("Effective weight", "有效权重"),
    "glossary.weight_is": (
        "How strongly the surrogate pulled beside the task: the number by which strengths are compared.",
        "代理量相对于任务的实际拉力：应以它比较强度。",
    ),
    "glossary.macs": ("MACs", "MACs"),
    "glossary.macs_is": (
        "Multiply-add operations for one picture: how much the device, or the server, computes.",
        "处理一张图片的乘加运算次数：设备端或服务器端的计算量。",
    ),
    "glossary.bound": ("Bound", "理论界"),
    "glossary.bound_is": (
        "A proved limit under stated assumptions. Everything else here is measured.",
        "在所述假设下得到证明的极限。本页其余数字均为实测。",
    ),
}
