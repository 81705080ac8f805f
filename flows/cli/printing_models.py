"""What is printed for people of models, runtimes and this machine."""

from __future__ import annotations

from typing import Any

from flows.cli.printing import print_line


def print_models(found: dict[str, Any]) -> None:
    """Print the models and their folders."""
    for one in found["models"]:
        state = one["folder"] or one["problem"]
        print_line(f"{one['name']:<32} {one['kind']:<9} {one['licence']:<12} {one['bytes'] / 1e6:>8.0f} MB  {state}")


def print_checks(found: dict[str, Any]) -> None:
    """Print the checks of doctor."""
    for one in found["checks"]:
        print_line(f"{one['state']:<8} {one['name']:<28} {one['found']}")
        if one["remedy"]:
            print_line(f"{'':<8} -> {one['remedy']}")


def print_conversions(found: dict[str, Any]) -> None:
    """Print the converted files."""
    for one in found["conversions"]:
        name = f"{one['runtime']}:{one['precision']}"
        print_line(f"{one['model']:<32} {name:<20} {one['size'] / 1e6:>8.0f} MB  sha256 {one['sha256']}")


def print_parity(found: dict[str, Any]) -> None:
    """Print the pairs of runtimes, the strata in which one fails, and its worst texts."""
    print_line(f"{'':<6} {'a':<28} {'b':<28} {'least':>9} {'mean':>9} {'top 10':>7}")
    for pair in found["pairs"]:
        overlap = "" if pair["top10_overlap"] is None else f"{pair['top10_overlap']:.1%}"
        verdict = "same" if pair["pass"] else "DIFFER"
        print_line(
            f"{verdict:<6} {pair['a']:<28} {pair['b']:<28} {pair['min']:>9.6f} {pair['mean']:>9.6f} {overlap:>7}"
        )
        if not pair["pass"]:
            print_line(f"{'':<6} {pair['reason']}")
            least, stratum, text = pair["worst"][0]
            print_line(f"{'':<6} worst: {least:.4f} {stratum} {text!r}")
