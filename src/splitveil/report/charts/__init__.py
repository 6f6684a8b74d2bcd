"""Small SVG charts of our own (ADR 0002): drawn in Python, styled by report.css, made interactive by report.js."""
