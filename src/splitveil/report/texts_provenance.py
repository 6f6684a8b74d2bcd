# ruff: noqa: RUF001 - Chinese punctuation is meant
"""The words of the section on where the numbers come from, in English and in Chinese."""

from __future__ import annotations

PROVENANCE_TEXTS: dict[str, tuple[str, str]] = {
    "provenance.title": ("Where this comes from", "来源与重现"),
    "provenance.lead": (
        "The signature pins what produced a number. The commands make it again.",
        "签名记录了数字的出处，下列命令可重现结果。",
    ),
    "provenance.page": ("This page:", "本页面："),
    "provenance.sweep": ("The sweep:", "整个扫描："),
    "provenance.again": ("This run:", "本次运行："),
    "provenance.unsaid": (
        "Given in Python, and not to be had from this command: {what}.",
        "以下内容由 Python 给出，上述命令无法表达：{what}。",
    ),
    "provenance.copy": ("Copy", "复制"),
    "provenance.fact": ("Fact", "项目"),
    "provenance.value": ("Value", "值"),
    "provenance.signature": ("Signature", "签名"),
    "provenance.audit_signature": ("Signature of the audit", "审计签名"),
    "provenance.audited": ("Audit ended", "审计结束"),
    "provenance.status": ("Status", "状态"),
    "provenance.started": ("Started", "开始"),
    "provenance.ended": ("Ended", "结束"),
    "provenance.data": ("Data", "数据"),
    "provenance.artefact": ("Artefact", "产物"),
    "provenance.model": ("Model", "模型"),
    "provenance.surrogate": ("Surrogate", "代理"),
    "provenance.defences": ("Defences", "防御"),
    "provenance.revision": ("Source revision", "源码版本"),
    "provenance.versions": ("Versions", "软件版本"),
    "provenance.hardware": ("Hardware", "硬件"),
    "provenance.config": ("Complete configuration", "完整配置"),
}
