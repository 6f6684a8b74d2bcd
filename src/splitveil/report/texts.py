# ruff: noqa: RUF001 - Chinese punctuation is meant
"""Every sentence of the page, in English and in Chinese. Places in {braces} are filled by `markup.say`."""

from __future__ import annotations

from splitveil.report.texts_attacks import ATTACK_TEXTS
from splitveil.report.texts_figures import FIGURE_TEXTS
from splitveil.report.texts_glossary import GLOSSARY_TEXTS
from splitveil.report.texts_provenance import PROVENANCE_TEXTS
from splitveil.report.texts_verdict import VERDICT_TEXTS

LANGUAGES = ("en", "zh")

TEXTS: dict[str, tuple[str, str]] = {
    # The frame of the page
    "page.title": ("Splitveil report", "Splitveil 报告"),
    "page.skip": ("Skip to the verdict", "跳到结论"),
    "page.theme": ("Switch between light and dark", "切换浅色与深色"),
    "page.language": ("中文", "English"),
    "page.language_label": ("Switch to Chinese", "切换到英文"),
    "page.contents": ("Contents", "目录"),
    "page.methods": ("Methods shown; press to hide or show", "显示的方法；点击可隐藏或显示"),
    "page.made": ("Made by Splitveil {version} on {when}.", "由 Splitveil {version} 于 {when} 生成。"),
    "page.offline": (
        "This file is complete: it loads nothing from the network. It contains test pictures.",
        "本文件自成一体，不从网络加载任何内容。其中含有测试图片。",
    ),
    "page.close": ("Close", "关闭"),
    "nav.gallery": ("Pictures", "图片"),
    "nav.frontier": ("Frontier", "权衡"),
    "nav.runs": ("Runs", "运行"),
    "nav.attacks": ("Attacks", "攻击"),
    "nav.leakage": ("Leakage", "泄露"),
    "nav.training": ("Training", "训练"),
    "nav.cost": ("Cost", "代价"),
    "nav.bounds": ("Bounds", "理论界"),
    "nav.configs": ("Settings", "设置"),
    "nav.provenance": ("Origin", "来源"),
    "nav.glossary": ("Glossary", "术语"),
    # Words used in many places
    "word.accuracy": ("Accuracy", "准确率"),
    "word.method": ("Method", "方法"),
    "word.run": ("Run", "运行"),
    "word.seed": ("Seed", "种子"),
    "word.seeds": ("Seeds", "种子数"),
    "word.seed_of": ("{name}, seed {seed}", "{name}，种子 {seed}"),
    "word.class": ("Class", "类别"),
    "word.epoch": ("Epoch", "轮次"),
    "word.as_table": ("Show as table", "以表格显示"),
    "label.undefended": ("undefended", "无防御"),
    "label.noise_alone": ("noise {value} alone", "仅噪声 {value}"),
    "label.weight": ("weight {value}", "权重 {value}"),
    "label.noise": ("noise {value}", "噪声 {value}"),
    "label.no_noise": ("no defence", "无任何防御"),
    # Gallery
    "gallery.title": ("What the attacker sees", "攻击者看到了什么"),
    "gallery.lead": (
        "Each test picture beside the closest reconstruction that any attack made of it. Worst leaks first; pictures "
        "that only some methods kept come last.",
        "每张测试图片与所有攻击中最接近的还原结果并列，泄露最严重者在前；仅部分方法保存的图片在后。",
    ),
    "gallery.empty": ("The audit kept no pictures.", "审计没有保存图片。"),
    "gallery.original": ("original", "原图"),
    "gallery.alt_original": ("Original picture, {name}", "原始图片，{name}"),
    "gallery.alt_shot": (
        "{name}: closest reconstruction from {method}, {scores}",
        "{name}：针对 {method} 的最接近还原，{scores}",
    ),
    "gallery.missing": ("no picture", "无图片"),
    "gallery.filter": ("Class", "类别"),
    "gallery.every_class": ("All classes", "全部类别"),
    "gallery.all": ("Show all pictures", "显示全部图片"),
    "gallery.enlarge": ("Enlarge {name}", "放大 {name}"),
    "gallery.part": ("{shown} of {total} pictures are in this file.", "本文件含 {total} 张中的 {shown} 张。"),
    # Frontier
    "frontier.title": ("Privacy against accuracy", "隐私与准确率"),
    "frontier.lead": (
        "Up is more useful, right is more private. Bars are 95 % intervals: over seeds where there are several, "
        "else over pictures.",
        "越靠上越有用，越靠右越私密。误差线为 95 % 区间：有多个种子时取自种子，否则取自图片。",
    ),
    "frontier.empty": ("A point needs an accuracy and an attack.", "画一个点需要准确率和一次攻击。"),
    "frontier.aria": (
        "Accuracy against the attack's {metric} for {count} methods",
        "{count} 种方法的准确率与攻击 {metric}",
    ),
    "frontier.x_mse": ("Attack MSE", "攻击 MSE"),
    "frontier.x_ssim": ("Attack SSIM", "攻击 SSIM"),
    "frontier.better": ("more private →", "更私密 →"),
    "frontier.tip": ("{name}\n{accuracy} accuracy\n{metric} {value}", "{name}\n准确率 {accuracy}\n{metric} {value}"),
    "floor.mean_image": ("mean picture", "平均图片"),
    "floor.class_mean": ("class mean", "类别均值"),
    # Runs
    "runs.title": ("All runs", "全部运行"),
    "runs.lead": (
        "MSE and SSIM are the worst case: for each picture the attack that came closest. Brackets are 95 % intervals.",
        "MSE 与 SSIM 为最坏情形：每张图片取最接近的攻击。方括号为 95 % 区间。",
    ),
    "runs.lead_seeds": (
        "MSE and SSIM are the worst case: for each picture the attack that came closest. In the rows of single runs, "
        "brackets are 95 % intervals over pictures; in the rows of means, ± is the standard deviation over seeds.",
        "MSE 与 SSIM 为最坏情形：每张图片取最接近的攻击。"
        "单次运行的行中，方括号为图片上的 95 % 区间；均值的行中，± 为各种子间的标准差。",
    ),
    "runs.strongest": ("Strongest attack", "最强攻击"),
    "runs.weight": ("Effective weight", "有效权重"),
    "runs.time": ("Time", "用时"),
    "runs.so_far": ("last epoch so far", "目前最后一轮"),
    "runs.before_failure": ("last epoch before it failed", "失败前最后一轮"),
    "runs.weaker": ("weaker audit", "较弱的审计"),
    "runs.strongest_of": ("strongest of {count}", "{count} 次中最强者"),
    "runs.mean_of": ("mean of {count}", "{count} 次均值"),
    "runs.failed_of": ("{count} failed", "{count} 次失败"),
    "runs.floor": ("Guess", "猜测"),
    "runs.floor_runs": ("Runs", "运行"),
    "runs.floor_seed": ("seed {seeds}", "种子 {seeds}"),
    "runs.floors": ("Floors: what guessing scores without the feature", "下限：不看特征、仅靠猜测的得分"),
    "runs.notes": ("Notes on single runs", "对个别运行的说明"),
    "runs.modes": ("Audits in other modes", "其他模式的审计"),
    "runs.modes_lead": (
        "With training_time the attacker learns before the test pictures exist; with inference_time it learns from "
        "most of them and is judged on the rest. Numbers of different modes do not compare.",
        "training_time：攻击者在看到测试图片之前学习；inference_time：用大部分测试图片学习，在其余图片上评判。不同模式的数字不可比较。",
    ),
    "runs.mode": ("Mode", "模式"),
    "runs.sweeps": ("Cells of the sweep", "扫描中的单元"),
    "runs.sweep_done": ("{done} of {count} cells have finished", "{count} 个单元中已完成 {done} 个"),
    "runs.sweep_failed": ("failed: {error}", "失败：{error}"),
    "runs.sweep_more": ("{count} further cells failed.", "另有 {count} 个单元失败。"),
    "note.no_config": ("{file} is missing, so the settings are unknown", "缺少 {file}，设置未知"),
    "note.no_file": ("{file} is missing", "缺少 {file}"),
    "note.no_result": ("{file} is missing: training has not finished", "缺少 {file}：训练尚未完成"),
    "note.audit_only": (
        "only an audit is here: the settings of the model are not known, and its accuracy is that on the pictures "
        "under attack",
        "此处只有审计：模型的设置未知，准确率为被攻击图片上的准确率",
    ),
    "note.audit_of_artefact": (
        "the audit of an exported artefact: settings and origin are those that the artefact states, and its accuracy "
        "is that on the pictures under attack",
        "这是对导出产物的审计：设置与来源以产物所述为准，准确率为被攻击图片上的准确率",
    ),
    "note.audit_of_run": (
        "the audit of a run on other pictures than its own: its accuracy is that on the pictures under attack",
        "这是在其他图片上对该运行的审计：准确率为被攻击图片上的准确率",
    ),
    "note.audit_of_endpoint": (
        "the audit of an endpoint, which does not tell its settings: its accuracy is that of a classifier of the "
        "auditor's own on what it sends",
        "这是对端点的审计，端点不说明其设置：准确率是审计者自己的分类器在所发送内容上的准确率",
    ),
    "note.no_audit": ("not attacked yet ({file} is missing)", "尚未受到攻击（缺少 {file}）"),
    "note.failed_cell": (
        "{file} is missing because the cell failed (error.json says why)",
        "缺少 {file}，因为该单元失败（原因见 error.json）",
    ),
    "note.no_scores": ("{file} holds no score", "{file} 中没有得分"),
    "note.damaged": ("{file} cannot be read ({reason})", "{file} 无法读取（{reason}）"),
    "note.shut": (
        "the folder {file} cannot be read ({reason}): change its permissions and make this report again",
        "文件夹 {file} 无法读取（{reason}）：请修改其权限后重新生成本报告",
    ),
    "note.other_config": (
        "{file} is not the one that the signature pins: it was changed since, or the files are of different runs",
        "{file} 与签名所记录的不符：此后被改动，或这些文件来自不同的运行",
    ),
    "note.other_weights": (
        "{file} is not the one that {other} pins: it was changed since, or the files are of different runs",
        "{file} 与 {other} 所记录的不符：此后被改动，或这些文件来自不同的运行",
    ),
    "note.other_pictures": (
        "{file} is about other pictures than those of the training: some of them may have been trained on",
        "{file} 所用的图片与训练时不同：其中一些可能被用于训练",
    ),
    "note.other_accuracy": (
        "{file} states another accuracy than {other}: it was changed since, or the files are of different runs",
        "{file} 与 {other} 中的准确率不符：此后被改动，或这些文件来自不同的运行",
    ),
    "note.changed_audit": (
        "{file} does not say what its card.json says: it was changed after the audit",
        "{file} 与其 card.json 不符：审计之后被改动",
    ),
    "note.no_card": (
        "{file} is missing: nobody can tell whether audit.json was changed after the audit",
        "缺少 {file}：无法判断 audit.json 在审计之后是否被改动",
    ),
    "note.attack_failed": ("the attack {name} failed ({reason})", "攻击 {name} 失败（{reason}）"),
    "note.attack_left_out": ("the attack {name} was left out: {reason}", "略去攻击 {name}：{reason}"),
    "note.cell_failed": ("the sweep gave it up ({reason})", "扫描已放弃此运行（{reason}）"),
    "note.explain_says": ("splitveil explain says: {text}", "splitveil explain 提示：{text}"),
    "note.audit_says": ("the audit warns: {text}", "审计提示：{text}"),
    "note.counted": ("training counted: {text}", "训练中记录到：{text}"),
    "note.bad_lines": ("{count} lines of {file} are damaged and left out", "{file} 中有 {count} 行损坏，已略去"),
    "note.status": ("its status is “{status}”", "其状态为 “{status}”"),
    # Attacks
    "attacks.title": ("Attack by attack", "逐项攻击"),
    "attacks.lead": (
        "An attack counts only if it breaks the undefended model. What each attacker may have is listed with it.",
        "只有能攻破无防御模型的攻击才有意义。每种攻击所允许掌握的信息列于其下。",
    ),
    "attacks.empty": (
        "No attack was run. Start one with: splitveil audit RUN",
        "尚未进行攻击。可运行：splitveil audit RUN",
    ),
    "attacks.untried": ("Not tried", "未尝试"),
    "attacks.untried_lead": ("Nobody knows what these attacks would find here.", "这些攻击在此会有何发现，无人知晓。"),
    "attacks.threat": ("What this attacker has", "攻击者掌握的信息"),
    "attacks.of": ("Results of the attack {name}", "攻击 {name} 的结果"),
    "attacks.recon": ("recon_acc", "recon_acc"),
    "attacks.curve": ("Strength: would more effort help?", "强度：加大投入是否有用？"),
    "attacks.curve_of": ("Error that {name} itself measures, over its effort", "{name} 自测误差随投入的变化"),
    "attacks.error": ("Error", "误差"),
    "attacks.own_error": ("Error, by its own measure", "自测误差"),
    "attacks.extra": (
        "{name} is a measure that was added to these audits. Guessing the mean picture has {floor}; {way}.",
        "{name} 是为这些审计另加的指标。猜测平均图片为 {floor}；{way}。",
    ),
    "attacks.larger": ("larger is more private", "越大越私密"),
    "attacks.smaller": ("smaller is more private", "越小越私密"),
    "attacks.unknown": (
        "the audits do not say which way is more private, or contradict each other",
        "审计未说明哪个方向更私密，或说法不一",
    ),
    "attacks.closest": ("Closest for", "最接近的占比"),
    "attacks.other": ("What else leaks", "其他泄露"),
    "attacks.other_lead": (
        "Attacks that look for something other than the picture itself.",
        "目标不是图片本身的攻击。",
    ),
    "attacks.guessing": ("guessing: {value}", "猜测：{value}"),
    "attacks.caught": ("found at 1 % false alarms: {value}", "误报 1 % 时的检出率：{value}"),
    "attacks.finding": ("Finding", "发现"),
    "attacks.first": ("First", "起始"),
    "attacks.last": ("Last", "最终"),
    "attacks.decoder": ("Decoder", "解码器"),
    "attacks.vote": ("all of them, voting", "全部投票"),
    # Leakage
    "leakage.title": ("Who leaks most", "谁泄露最多"),
    "leakage.lead": (
        "An average can look safe while some pictures are wide open.",
        "平均值看似安全时，仍可能有个别图片完全暴露。",
    ),
    "leakage.decile": ("The worst tenth", "最差的十分之一"),
    "leakage.decile_lead": (
        "The tenth of the test pictures that the attacker recovered best, beside the mean of all. Each measure takes "
        "its own tenth: the highest SSIM, the lowest MSE.",
        "攻击者还原得最好的十分之一测试图片，与全体均值对照。每项指标各取自己的十分之一：SSIM 最高者，MSE 最低者。",
    ),
    "leakage.mean": ("{metric}, all", "{metric}，全体"),
    "leakage.worst": ("{metric}, worst tenth", "{metric}，最差十分之一"),
    "leakage.classes": ("Class by class", "按类别"),
    "leakage.groups": ("Group by group", "按群体"),
    "leakage.groups_lead": (
        "Some pictures are easier to guess than others, so each group is held against guessing the mean picture: the "
        "less of that error is left, the more leaks.",
        "有些图片本就更容易猜中，因此各群体均与猜测平均图片相比：剩余误差越小，泄露越多。",
    ),
    "leakage.group": ("Group", "群体"),
    "leakage.pictures": ("Pictures", "图片数"),
    "leakage.guess": ("MSE of guessing", "猜测的 MSE"),
    "leakage.left": ("Error left", "剩余误差"),
    "leakage.aria": ("{metric} of the attack per class and method", "各类别与方法的攻击 {metric}"),
    "leakage.x": ("Attack {metric}", "攻击 {metric}"),
    "leakage.tip": ("{name}\n{cls}: {value}", "{name}\n{cls}：{value}"),
    "leakage.cut": (
        "The {count} classes that leak most; the table has all.",
        "泄露最多的 {count} 个类别；表格含全部。",
    ),
    # Training
    "training.title": ("Training", "训练过程"),
    "training.lead": (
        "One line per run. The surrogate's loss is a training signal, not a measure of privacy: the attacks are.",
        "每次运行一条曲线。代理损失只是训练信号，不是隐私的度量；攻击才是。",
    ),
    "training.cut": (
        "(values above {limit} are drawn at the upper edge)",
        "（高于 {limit} 的值画在上边缘）",
    ),
    "training.more": ("More curves", "更多曲线"),
    "metric.accuracy": ("Validation accuracy", "验证准确率"),
    "metric.test_accuracy": ("Test accuracy", "测试准确率"),
    "metric.task_loss": ("Task loss", "任务损失"),
    "metric.rob_loss": ("Surrogate loss (rob_loss)", "代理损失 (rob_loss)"),
    "metric.intra_mse": ("Spread within classes (intra_mse)", "类内离散度 (intra_mse)"),
    "metric.intra_mse_raw": ("Spread within classes, raw (intra_mse_raw)", "类内离散度，原始 (intra_mse_raw)"),
    "metric.train_accuracy": ("Accuracy on training pictures", "训练图片上的准确率"),
    "metric.fit_loss": ("Loss of the surrogate's own parameters (fit_loss)", "代理自身参数的损失 (fit_loss)"),
    "metric.feature_spread": ("Spread of the features over pictures", "特征在图片间的离散度"),
    "metric.gate_soft_mean": ("Dimension gate, mean (gate_soft_mean)", "维度门均值 (gate_soft_mean)"),
    "metric.gate_hard_mean": ("SNR gate, mean (gate_hard_mean)", "信噪比门均值 (gate_hard_mean)"),
    "metric.complexity_gate": ("Complexity gate", "复杂度门"),
    "metric.shut": ("Share of steps in which the surrogate was shut off", "代理被关断的步数比例"),
    "metric.var_mean": ("Variance within classes, mean (var_mean)", "类内方差均值 (var_mean)"),
    "metric.base_mean": ("Cost of the variance before gates (base_mean)", "门控之前的方差代价 (base_mean)"),
    "metric.share_below_threshold": ("Share of variances below the threshold", "低于阈值的方差比例"),
    "metric.classes": ("Classes in a batch", "每批的类别数"),
    "metric.no_bank": ("Steps before the first fit of the mixture", "混合模型首次拟合之前的步数比例"),
    "metric.skipped": ("Skipped steps", "跳过的步数比例"),
    "metric.eval_seconds": ("Seconds of evaluation", "评估用时（秒）"),
    "metric.refresh_seconds": ("Seconds of epoch statistics", "每轮统计用时（秒）"),
    "metric.effective_weight": ("Effective weight", "有效权重"),
    "metric.lr": ("Learning rate", "学习率"),
    # Cost
    "cost.title": ("What it costs", "代价"),
    "cost.lead": (
        "What the device sends and computes for one picture, and what it leaves to the server.",
        "设备为每张图片发送和计算的量，以及留给服务器的量。",
    ),
    "cost.shape": ("Feature", "特征"),
    "cost.bytes_per_image": ("Sent per picture", "每图发送"),
    "cost.edge_macs": ("Device MACs", "设备 MACs"),
    "cost.cloud_macs": ("Server MACs", "服务器 MACs"),
    "cost.edge_params": ("Device parameters", "设备参数"),
    "cost.cloud_params": ("Server parameters", "服务器参数"),
    "cost.share": ("Device's share of MACs", "设备占 MACs 比例"),
    # Bounds
    "bounds.title": ("Bounds", "理论界"),
    "bounds.lead": (
        "A bound holds for every attacker that meets its assumptions, and for no other.",
        "理论界只对满足其假设的攻击者成立。",
    ),
    "bounds.limit": ("Lower bound, MSE", "MSE 下界"),
    "bounds.measured": ("Measured, MSE", "实测 MSE"),
    "bounds.for": ("It holds for", "适用对象"),
    "bounds.transmissions": ("Transmissions seen", "所见传输次数"),
    "bounds.below": (
        "Attacks below it: {names}. It does not hold for them.",
        "低于此界的攻击：{names}。此界不适用于它们。",
    ),
    "bound.entropy": ("Entropy bound", "熵界"),
    "bound.fisher": ("Fisher bound", "Fisher 界"),
    "bound_is.entropy": (
        "How much what is sent can tell about the picture at most. The factor is what it leaves of the error that an "
        "attacker has without it: 1 tells nothing.",
        "所发送内容最多能透露多少图片信息。因子表示攻击者的误差还剩多少：1 表示毫无透露。",
    ),
    "bound_is.fisher": (
        "One over the Fisher information about a pixel (dFIL), averaged over pictures.",
        "像素 Fisher 信息 (dFIL) 的倒数，按图片取均值。",
    ),
    "bound_key.information_nats": ("Information, nats", "信息量（nats）"),
    "bound_key.factor": ("Factor", "因子"),
    "bound_key.dfil": ("dFIL", "dFIL"),
    "bounds.no_assumptions": (
        "The file names no assumptions, so this must not be read as a guarantee.",
        "文件没有写明假设，因此不能视为保证。",
    ),
    "bounds.of": ("The bound {name}", "理论界 {name}"),
    # Configurations
    "configs.title": ("How the settings differ", "设置的差异"),
    "configs.lead": ("Only keys whose values are not the same everywhere.", "只列出取值不同的键。"),
    "configs.key": ("Key", "键"),
    "configs.partial": ("{count} keys that only some methods have", "只有部分方法才有的 {count} 个键"),
    "configs.same": ("{count} further keys are equal in all methods.", "另有 {count} 个键在所有方法中相同。"),
}

TEXTS |= VERDICT_TEXTS | ATTACK_TEXTS | FIGURE_TEXTS | PROVENANCE_TEXTS | GLOSSARY_TEXTS
