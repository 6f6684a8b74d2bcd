# ruff: noqa: RUF001 - Chinese punctuation is meant
"""Sentences of the first screen: the verdict, and what limits it, in English and in Chinese."""

from __future__ import annotations

VERDICT_TEXTS: dict[str, tuple[str, str]] = {
    # The first screen
    "setting.protocol": ("{name} protocol", "{name} 协议"),
    "setting.tier": ("{name} audit", "{name} 级审计"),
    "setting.altered": ("{name} audit, altered", "{name} 级审计（有改动）"),
    "setting.images": ("{count} test pictures", "{count} 张测试图片"),
    "setting.seeds": ("mean of {count} seeds", "{count} 个种子的均值"),
    "verdict.attack": (
        "At {accuracy} accuracy, {attacks} recovers pictures at {score}",
        "在 {accuracy} 的准确率下，{attacks}还原图片达到 {score}",
    ),
    "verdict.attack_auditors": (
        "The auditor's own classifier reaches {accuracy} accuracy on what is sent; {attacks} recovers pictures at "
        "{score}",
        "审计者自己的分类器准确率为 {accuracy}；{attacks}还原图片达到 {score}",
    ),
    "verdict.attack_only": (
        "Accuracy not known: {attacks} recovers pictures at {score}",
        "准确率未知：{attacks}还原图片达到 {score}",
    ),
    "verdict.the_attack": ("the attack", "该攻击"),
    "verdict.best_of": ("the best of {count} attacks", "{count} 种攻击中最强者"),
    "verdict.beside": ("; {name} {score}", "；{name}时为 {score}"),
    "verdict.is_undefended": (", and nothing defends them", "，且没有任何防御"),
    "verdict.is_noise_alone": (", and nothing but noise defends them", "，且只有噪声防御"),
    "verdict.floor": ("; guessing the mean picture scores {score}", "；只猜平均图片为 {score}"),
    "verdict.stop": (".", "。"),
    "verdict.unattacked": (
        "These models reach {accuracy} accuracy, but nobody has attacked them yet: run “splitveil audit”.",
        "这些模型的准确率达到 {accuracy}，但尚未受到攻击检验：请运行 “splitveil audit”。",
    ),
    "verdict.unattacked_one": (
        "This model reaches {accuracy} accuracy, but nobody has attacked it yet: run “splitveil audit”.",
        "该模型的准确率达到 {accuracy}，但尚未受到攻击检验：请运行 “splitveil audit”。",
    ),
    "verdict.unfinished_only": ("This run is unfinished. ", "本次运行尚未完成。"),
    "verdict.unfinished_at": (
        "This run is unfinished: epoch {epoch} of {epochs}. ",
        "本次运行尚未完成：第 {epoch} 轮，共 {epochs} 轮。",
    ),
    "verdict.unfinished_one": ("{count} of {total} runs is unfinished. ", "{total} 次运行中有 {count} 次尚未完成。"),
    "verdict.unfinished": ("{count} of {total} runs are unfinished. ", "{total} 次运行中有 {count} 次尚未完成。"),
    "verdict.failed": ("{count} of {total} runs failed. ", "{total} 次运行中有 {count} 次失败。"),
    "verdict.failed_only": ("This run failed. ", "本次运行失败。"),
    "verdict.so_far_one": (
        "The accuracy of its last epoch so far is {accuracy}; there is nothing to attack before it ends.",
        "目前最后一轮的准确率为 {accuracy}；训练结束之前没有可供攻击的模型。",
    ),
    "verdict.so_far": (
        "The best accuracy of a last epoch so far is {accuracy}; there is nothing to attack before they end.",
        "目前各运行最后一轮的最高准确率为 {accuracy}；训练结束之前没有可供攻击的模型。",
    ),
    "verdict.no_pictures": (
        "No attack here has a score for pictures; what the others found stands under “What else leaks”.",
        "这里没有针对图片的攻击得分；其他攻击的发现见 “其他泄露”。",
    ),
    "verdict.nothing": (
        "There are no results here yet: neither an accuracy nor an attack.",
        "这里还没有结果：既没有准确率，也没有攻击。",
    ),
    "hero.title": ("Verdict", "结论"),
    "hero.which": ("Method: {name}", "方法：{name}"),
    "hero.safest": (", the safest of {count} defended methods.", "，{count} 种防御方法中最安全的一种。"),
    "hero.least": (
        ", which leaks least of {count} models; what defends each of them is not known here.",
        "，{count} 个模型中泄露最少；各自有何防御，此处并不知道。",
    ),
    "hero.near": (
        ", the safest of the {count} (of {total}) not known to lie more than {points} points below the most accurate "
        "on the same data.",
        "，排除已知比同一数据上最高准确率低 {points} 个百分点以上的，余下 {count} 种（共 {total} 种）中最安全。",
    ),
    "hero.near_one": (
        ", the most accurate of {total}, by more than {points} points.",
        "，{total} 种中准确率最高，领先超过 {points} 个百分点。",
    ),
    "hero.cheap": (
        ", the safest of the {count} (of {total}) that cost at most {points} points of accuracy.",
        "，在准确率损失不超过 {points} 个百分点的 {count} 种（共 {total} 种）中最安全。",
    ),
    "hero.cheap_one": (
        ", the only one of {total} that costs at most {points} points of accuracy.",
        "，{total} 种中唯一一种准确率损失不超过 {points} 个百分点的方法。",
    ),
    "hero.costly": (
        ", the safest of {count}; all of them cost more than {points} points of accuracy.",
        "，{count} 种中最安全；它们的准确率损失都超过 {points} 个百分点。",
    ),
    "hero.once_not": (
        "If each picture is sent once only, not {count} times: {score}.",
        "若每张图片只发送一次，而非 {count} 次：{score}。",
    ),
    "hero.once": (
        "If each picture is sent once only: {score}.",
        "若每张图片只发送一次：{score}。",
    ),
    "scale.title": (
        "Similarity of the attacker's pictures, from 0 to 1: {pins}",
        "攻击者图片的相似度，从 0 到 1：{pins}",
    ),
    "scale.low": ("0 · unrelated", "0 · 毫不相干"),
    "scale.high": ("perfect copy · 1", "完全相同 · 1"),
    "scale.floor": ("mean picture", "平均图片"),
    "tile.auditors": ("auditor's classifier", "审计者的分类器"),
    "tile.ssim": ("SSIM ↓ safer", "SSIM ↓ 更安全"),
    "tile.mse": ("MSE ↑ safer", "MSE ↑ 更安全"),
    "tile.psnr": ("PSNR ↓ safer", "PSNR ↓ 更安全"),
    "tile.points": ("{value} points", "{value} 个百分点"),
    "tile.before": ("{name} {value}", "{name} {value}"),
    "tile.ratio": ("{value} × {name}", "{name}的 {value} 倍"),
    # What limits the claim
    "caveat.title": ("Before you rely on this", "引用之前请注意"),
    "caveat.audits": (
        "One model was audited {count} times ({names}): only the audit that found most, {name}, counts. A weaker audit "
        "says nothing for the model.",
        "同一个模型被审计了 {count} 次（{names}）：只计入发现泄露最多的一次，即 {name}。较弱的审计不能为模型作证。",
    ),
    "caveat.audits_data": (
        "These audits of one model attacked different pictures ({values}), on which scores do not compare: read each "
        "beside what guessing the mean picture scores in its own audit.",
        "对同一模型的这些审计攻击了不同的图片（{values}），得分不可直接比较：请将每次审计与其自身猜平均图片的得分对照。",
    ),
    "caveat.changed": (
        "Do not rely on the numbers of {names}: files there are not those that were written with the result (see the "
        "notes on single runs). Audit the weights again.",
        "请勿采信 {names} 的数字：其中的文件与结果写出时不符（见对个别运行的说明）。请重新审计权重。",
    ),
    "caveat.idle": (
        "This model is no better than always naming the most frequent class: what it leaks says nothing about one that "
        "works.",
        "该模型不比总是猜最常见的类别更好：它泄露多少，说明不了可用的模型。",
    ),
    "caveat.idle_seeds": (
        "The mean over seeds makes this model look safer than it is: {names} is no better than always naming the most "
        "frequent class.",
        "各随机种子的平均使该模型显得比实际更安全：{names} 不比总是猜最常见的类别更好。",
    ),
    "caveat.idle_others": (
        "No better than always naming the most frequent class, and therefore not considered above: {names}.",
        "不比总是猜最常见的类别更好，因此上面未予考虑：{names}。",
    ),
    "caveat.auditors_accuracy": (
        "The accuracy of {name} is that of a classifier of the auditor's own on what is sent; what the service itself "
        "reaches is not known.",
        "{name} 的准确率是审计者自己的分类器在所发送内容上的准确率；服务本身能达到多少并不知道。",
    ),
    "caveat.other_accuracy": (
        "{name} states {stated} accuracy, but the audit measured {measured} on the {count} pictures that it attacked: "
        "they are unlike the other test pictures, the last epochs of training differ much, or the statement is wrong.",
        "{name} 声称准确率为 {stated}，但审计在其攻击的 {count} 张图片上测得 {measured}：这些图片与其余测试图片不同，"
        "或训练的最后几轮相差很大，或该声称有误。",
    ),
    "caveat.untried": (
        "Not tried, see the end of “Attack by attack”: {names}.",
        "未尝试的攻击（见“逐项攻击”末尾）：{names}。",
    ),
    "caveat.unfinished_one": (
        "{count} of {total} runs is unfinished and counts in no mean: {names}.",
        "{total} 次运行中有 {count} 次尚未完成，不计入均值：{names}。",
    ),
    "caveat.unfinished": (
        "{count} of {total} runs are unfinished and count in no mean: {names}.",
        "{total} 次运行中有 {count} 次尚未完成，不计入均值：{names}。",
    ),
    "caveat.failed_one": (
        "{count} of {total} runs failed (error.json says why; “splitveil sweep ... --retry-failed” runs it again) and "
        "counts in no mean: {names}.",
        "{total} 次运行中有 {count} 次失败（原因见 error.json；“splitveil sweep ... --retry-failed” 可重新运行），"
        "不计入均值：{names}。",
    ),
    "caveat.failed": (
        "{count} of {total} runs failed (error.json says why; “splitveil sweep ... --retry-failed” runs them again) "
        "and count in no mean: {names}.",
        "{total} 次运行中有 {count} 次失败（原因见 error.json；“splitveil sweep ... --retry-failed” 可重新运行），"
        "不计入均值：{names}。",
    ),
    "caveat.unattacked_one": (
        "{count} of {total} runs was not attacked (audit/audit.json is missing or holds no score): {names}.",
        "{total} 次运行中有 {count} 次未受到攻击（audit/audit.json 缺失或没有得分）：{names}。",
    ),
    "caveat.unattacked": (
        "{count} of {total} runs were not attacked (audit/audit.json is missing or holds no score): {names}.",
        "{total} 次运行中有 {count} 次未受到攻击（audit/audit.json 缺失或没有得分）：{names}。",
    ),
    "caveat.no_undefended": (
        "No undefended run is in this report, so nothing shows that the attacks work at all.",
        "本报告没有无防御的运行，因此无法说明这些攻击本身有效。",
    ),
    "caveat.no_undefended_sane": (
        "No undefended run is in this report, so nothing shows what this network leaks without its defence. (The "
        "attacks did break a model that sends everything.)",
        "本报告没有无防御的运行，因此无法说明该网络在没有防御时泄露多少。（攻击确实攻破了一个发送全部内容的模型。）",
    ),
    "caveat.noisy_baseline": (
        "The model beside the headline has noise {sigma}: without any it would leak more.",
        "与之对照的模型带有噪声 {sigma}：完全没有噪声时会泄露更多。",
    ),
    "caveat.baselines": (
        "Several models here have no defence, or noise alone, and differ in other settings: {name} stands for them, "
        "not {others}.",
        "此处有多个模型没有防御或仅有噪声，且其他设置不同：以 {name} 为代表，而不是 {others}。",
    ),
    "caveat.other_network": (
        "The undefended model is another network ({name}, where the headline has {other}): the difference is not the "
        "defence's alone.",
        "无防御的模型是另一个网络（{name}，而所述方法为 {other}）：差异不只来自防御。",
    ),
    "caveat.no_gain": (
        "It is not shown that this leaks less than {name}: the 95 % intervals leave room for no difference.",
        "未能证明其泄露少于{name}：95 % 区间允许两者没有差别。",
    ),
    "caveat.not_broken": (
        "The attacks did not break the undefended model; their failure on a defended one means nothing.",
        "攻击未能攻破无防御的模型；它们在有防御的模型上失败不说明任何问题。",
    ),
    "caveat.no_floor": (
        "No floor was measured: compare with other runs only.",
        "没有测量下限：只能与其他运行相比较。",
    ),
    "caveat.seeds_one": (
        "One seed: this shows one run, not yet a result. Three seeds make a claim.",
        "只有一个种子：这只是一次运行，还不是结论。至少需要三个种子。",
    ),
    "caveat.seeds": ("{count} seeds: three or more make a claim.", "只有 {count} 个种子：至少三个才能下结论。"),
    "caveat.mixed_data": (
        "The runs use different data ({values}); their numbers do not compare.",
        "各运行使用了不同的数据（{values}），数字不可比较。",
    ),
    "caveat.mixed_protocol": (
        "The runs use different protocols ({values}); their numbers do not compare.",
        "各运行使用了不同的协议（{values}），数字不可比较。",
    ),
    "caveat.mixed_mode": (
        "The audits use different modes ({values}); their numbers do not compare.",
        "各审计使用了不同的模式（{values}），数字不可比较。",
    ),
    "caveat.mixed_tier": (
        "The audits differ in tier ({values}); a weaker audit flatters its run.",
        "各审计的级别不同（{values}）；较弱的审计会使结果偏好。",
    ),
    "caveat.mixed_images": (
        "The audits attacked different numbers of pictures ({values}), so their scores are over different pictures.",
        "各审计攻击的图片数量不同（{values}），因此得分来自不同的图片。",
    ),
    "caveat.mixed_limit": (
        "The runs had different numbers of training pictures (data.limit: {values}); their numbers do not compare.",
        "各运行的训练图片数量不同（data.limit：{values}），数字不可比较。",
    ),
    "caveat.mixed_epochs": (
        "The runs were trained for different numbers of epochs ({values}).",
        "各运行的训练轮数不同（{values}）。",
    ),
    "caveat.mixed_attacks": (
        "Not every run faced the same attacks; a run that faced fewer looks safer than it is.",
        "并非所有运行都受到相同的攻击；受攻击较少者会显得更安全。",
    ),
    "caveat.insane": (
        "In their own test the attacks did not break a model that protects nothing; their failure here means nothing.",
        "在自检中，攻击未能攻破毫无保护的模型；它们在此处的失败不说明任何问题。",
    ),
    "caveat.doubted": (
        "The audit gave no verdict on a headline run: its numbers are not to be trusted (see the notes on runs).",
        "审计未对所述运行作出结论，因为其数字不可信（见对个别运行的说明）。",
    ),
    "caveat.attacks_failed": (
        "Some attacks failed to run, so the best attack may be stronger than shown (see the notes on single runs).",
        "有攻击未能运行，因此最强攻击可能比所示更强（见对个别运行的说明）。",
    ),
    "caveat.warned": (
        "The audit itself warns about the headline runs (see the notes on single runs).",
        "审计本身对所述运行提出了提示（见对个别运行的说明）。",
    ),
    "caveat.counted": (
        "Training counted something to worry about with {names} (see the notes on single runs).",
        "{names} 的训练中出现了值得警惕的情况（见对个别运行的说明）。",
    ),
    "caveat.bound": (
        "An attack on {name} went below its lower bound: an assumption of that bound does not hold.",
        "对 {name} 的攻击低于其理论下界：该下界的某个假设不成立。",
    ),
}
