# ruff: noqa: RUF001 - Chinese punctuation is meant
"""The sentences of the figures that explain a run, in English and in Chinese."""

from __future__ import annotations

FIGURE_TEXTS: dict[str, tuple[str, str]] = {
    "nav.explain": ("Inside", "内部"),
    "explain.title": ("Inside the surrogate", "代理的内部"),
    "explain.lead": (
        "What the surrogate attends to, and where the features of the test pictures lie. These pictures show a "
        "training signal; they do not measure privacy.",
        "代理关注什么，以及测试图片的特征位于何处。这些图展示训练信号，不是隐私的度量。",
    ),
    "explain.stored": (
        "From the maps that training stored, of one batch of training pictures. For planes of the features: {command}",
        "来自训练时保存的图，取自一批训练图片。若需特征平面图：{command}",
    ),
    "explain.maps": (
        "Maps: the final state on {count} test pictures.",
        "映射图：最终状态在 {count} 张测试图片上的结果。",
    ),
    "explain.planes": (
        "Planes: what the device sends for {count} test pictures.",
        "平面图：设备为 {count} 张测试图片所发送的特征。",
    ),
    "explain.left_out": (
        "{count} further runs have such figures; they would make this file too large. Draw them with: {command}",
        "另有 {count} 次运行也有此类图；放入会使文件过大。可运行：{command}",
    ),
    "unit.slot_one": ("slot", "槽"),
    "unit.slot_many": ("slots", "槽"),
    "unit.slot_head": ("Slot", "槽"),
    "unit.component_one": ("component", "分量"),
    "unit.component_many": ("components", "分量"),
    "unit.component_head": ("Mixture component", "混合分量"),
    # Titles
    "figure.attention": ("Attention within classes", "类内注意力"),
    "figure.assignment": ("Which picture belongs to which {one}", "图片与{one}的归属"),
    "figure.slot_mass": ("Mass of the {many} in each class", "各类别中{many}的质量"),
    "figure.slot_training": ("Mass of the {many} over training", "训练中{many}的质量"),
    "figure.gate_training": ("Gates over training", "训练中的门"),
    "figure.dimension_gate": ("Dimension gate by class", "各类别的维度门"),
    "figure.dimension_gate_places": ("Dimension gate by place", "各位置的维度门"),
    "figure.snr_gate": ("SNR gate by class", "各类别的信噪比门"),
    "figure.snr_gate_places": ("SNR gate by place", "各位置的信噪比门"),
    "figure.looks": ("Where each slot looks", "各槽的关注位置"),
    "figure.pca": ("Principal components of the features", "特征的主成分"),
    "figure.tsne": ("t-SNE of the features", "特征的 t-SNE"),
    # What each shows
    "caption.attention": (
        "Each stroke is a picture of one batch. At 1 it weighs as much as the others of its class; to the right more.",
        "每一短线为一批中的一张图片。位于 1 时与同类图片权重相同；越靠右权重越大。",
    ),
    "caption.assignment": (
        "Each row is a picture, sorted by class; the stronger the colour, the more it belongs to the {one}.",
        "每行一张图片，按类别排列；颜色越浓，越属于该{one}。",
    ),
    "caption.slot_mass": (
        "Share of a class's pictures that each {one} holds in one batch. Grey: class not there.",
        "一批中各{one}所占该类图片的比例。灰色：该类未出现。",
    ),
    "caption.slot_training": (
        "The same shares, averaged over classes, of the same pictures after each epoch.",
        "同一批图片在每轮之后的上述比例，按类别平均。",
    ),
    "caption.gate_training": (
        "Means over the classes of one batch, after each epoch. A gate at 0 lets nothing through.",
        "一批中各类别的均值，逐轮记录。门为 0 时不通过任何信号。",
    ),
    "caption.dimension_gate": (
        "The learned gate g_d, averaged over the places of each channel. Grey: class not in the batch.",
        "学习得到的门 g_d，按通道内位置平均。灰色：该类不在批中。",
    ),
    "caption.snr_gate": (
        "The gate on the ratio of variance and mean, averaged over the places of each channel.",
        "方差与均值之比的门，按通道内位置平均。",
    ),
    "caption.dimension_gate_places": (
        "The same gate place by place, averaged over classes.",
        "同一个门在各位置的取值，按类别平均。",
    ),
    "caption.snr_gate_places": (
        "The same gate place by place, averaged over classes.",
        "同一个门在各位置的取值，按类别平均。",
    ),
    "caption.looks": (
        "Attention of each slot over the places of the feature map; 1 everywhere: it looks nowhere in particular.",
        "各槽在特征图各位置上的注意力；处处为 1 表示不特别关注任何位置。",
    ),
    "caption.pca": (
        "The plane of largest variance, both axes in the same unit. Panels have their own scale.",
        "方差最大的平面，两轴单位相同。各图比例各自独立。",
    ),
    "caption.tsne": (
        "Neighbours stay neighbours; sizes of and distances between groups mean nothing.",
        "邻近关系得以保留；团块的大小与间距没有意义。",
    ),
    # Axes, legends, tables
    "axis.slot": ("{head}", "{head}"),
    "axis.channel": ("Channel", "通道"),
    "axis.channel_bins": ("Channel (means of {count})", "通道（每 {count} 个取均值）"),
    "axis.weight": ("Weight relative to the class mean", "相对于类均值的权重"),
    "axis.even": ("equal weights", "等权"),
    "axis.share": ("Share", "比例"),
    "axis.gate": ("Gate", "门"),
    "axis.attention": ("Attention × places", "注意力 × 位置数"),
    "axis.responsibility": ("Responsibility", "责任度"),
    "axis.component": ("PC {number} ({share} of the variance)", "主成分 {number}（占方差 {share}）"),
    "axis.plain_component": ("PC {number}", "主成分 {number}"),
    "axis.tsne": ("t-SNE {number}", "t-SNE {number}"),
    "panel.before": ("before: {run}", "之前：{run}"),
    "panel.after": ("after: {run}", "之后：{run}"),
    "panel.only": ("{run}", "{run}"),
    "panel.rest": ("other classes", "其他类别"),
    "legend.slot": ("{one} {number}", "{one} {number}"),
    "legend.dimension_gate": ("dimension gate", "维度门"),
    "legend.snr_gate": ("SNR gate", "信噪比门"),
    "legend.class_gate": ("class gate", "类别门"),
    "legend.complexity_gate": ("complexity gate", "复杂度门"),
    "legend.effective_samples": ("samples that count", "有效样本比例"),
    "legend.shut": ("shut off", "已关断"),
    "tile.channel": ("channel {number}", "通道 {number}"),
    "tile.slot": ("slot {number}", "槽 {number}"),
    "tile.picture": ("picture", "图片"),
    "measure.pictures": ("Pictures", "图片数"),
    "measure.largest": ("Largest weight", "最大权重"),
    "measure.effective": ("Samples that count", "有效样本比例"),
    "measure.mean": ("Mean", "均值"),
    "measure.neighbours": ("Neighbours of the same class", "同类近邻比例"),
    "measure.within": ("Variance within classes (before noise)", "类内方差占比（加噪前）"),
    "measure.planes": ("Variance in the plane", "平面内方差占比"),
}
