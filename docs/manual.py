"""Makes the manual as a site: `make docs`, or python docs/manual.py build/manual. Neither needs a network.

Pages are those of docs/, in the order of :data:`NAV`; the reference is generated from the code (reference_pages.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import reference_pages

DOCS = Path(__file__).parent
ROOT = DOCS.parent

TUTORIALS = sorted(DOCS.glob("tutorials/[0-9]*.md"))

NAV: dict[str, tuple[str, ...]] = {
    "By task": ("tasks.md", "glossary.md"),
    "Tutorials": ("tutorials/index.md", *(f"tutorials/{path.name}" for path in TUTORIALS)),
    "Models": (
        "language.md",
        "quantisation.md",
        "pytorch.md",
        "jax.md",
        "litert.md",
        "gradients.md",
        "values.md",
        "integers.md",
    ),
    "Speed": (
        "profile.md",
        "view.md",
        "tuning.md",
        "schedules.md",
        "explore.md",
        "mcp.md",
        "results.md",
        "cpu-speed.md",
        "gpu-speed.md",
    ),
    "Boards": ("boards.md", "boards-running.md", "synthesis.md", "power.md"),
    "The core": ("core.md", "isa.md", "registers.md", "simulators.md", "fast-simulation.md", "timing.md", "systems.md"),
    "The compiler": ("architecture.md", "graph.md", "passes.md", "compiler.md", "cpu.md", "gpu.md", "extending.md"),
    "Right and safe": ("testing.md", "formal.md", "certificates.md", "mutation.md", "security.md", "caches.md"),
    "Reference": ("operators.md", *(f"reference/{name}" for name in reference_pages.PAGES)),
    "Project": ("changes.md", "contributing.md"),
}
"""Reading order: each page once. What is not in docs/ itself is written by this script."""

COPIED = {"index.md": "README.md", "changes.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages at the root of the project, by their names in the site."""

CONFIG = """site_name: weft
site_description: Co-design of tensor accelerators and their compiler, in Python
docs_dir: {source}
site_dir: {site}
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.tabs, navigation.footer, search.highlight, search.suggest, content.code.copy, toc.follow]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      primary: blue grey
      toggle: {{icon: material/weather-night, name: Dark}}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      primary: blue grey
      toggle: {{icon: material/weather-sunny, name: Light}}
plugins: [search, offline]
extra:
  polyfills: [iframe-worker.js]  # the theme's own would be fetched from the network
extra_css: [weft.css]
validation:
  omitted_files: warn
  unrecognized_links: warn
  anchors: warn
markdown_extensions:
  - tables
  - admonition
  - pymdownx.superfences
  - pymdownx.highlight: {{use_pygments: true}}
  - toc: {{permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}}}
nav:
{nav}
"""


def in_docs() -> set[str]:
    """All pages of docs/, relative to it."""
    return {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def listed() -> list[str]:
    """All pages of the site but its first, in reading order."""
    return [page for pages in NAV.values() for page in pages]


def rewritten(text: str, page: str, home: Mapping[str, str]) -> str:
    """A page's text with the links of a site.

    ``home``: pages of the site by the path of their source in the project. A link to a file that is no page becomes its
    name: sources are not part of the site.
    """
    place = next((source for source, name in home.items() if name == page), page)
    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", lambda link: _link(link, place, page, home), text)


def _link(link: re.Match[str], place: str, page: str, home: Mapping[str, str]) -> str:
    image, words, target = link.groups()
    name, mark, anchor = target.partition("#")
    if "://" in name or not name or target.startswith("mailto:"):
        return link[0]
    path = (ROOT / place).parent.joinpath(name).resolve()
    if not path.is_relative_to(ROOT):
        return link[0]
    source = path.relative_to(ROOT).as_posix()
    if source in home:
        return f"{image}[{words}]({_way(page, home[source])}{mark}{anchor})"
    if source.startswith("docs/pictures/"):
        return f"{image}[{words}]({_way(page, source.removeprefix('docs/'))})"
    return f"{words} (`{source}`)"


def titled(text: str) -> str:
    """With the title of a page where a link shows its file's name: a reader of the site knows pages by their titles."""

    def title(link: re.Match[str]) -> str:
        page = next((path for path in (DOCS / link[1], DOCS / "tutorials" / link[1]) if path.exists()), None)
        return link[0] if page is None else f"[{page.read_text().partition(chr(10))[0].lstrip('# ')}]"

    return re.sub(r"\[`?([\w-]+\.md)`?\](?=\()", title, text)


def _way(page: str, target: str) -> str:
    """From one page of the site to another."""
    return "../" * page.count("/") + target


def write_pages(folder: Path) -> None:
    """All pages and pictures as MkDocs reads them."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "pictures", folder / "pictures")
    shutil.copytree(DOCS / "theme", folder, dirs_exist_ok=True)
    home = {f"docs/{page}": page for page in in_docs()} | {source: name for name, source in COPIED.items()}
    for source, page in home.items():
        _write(folder / page, rewritten((ROOT / source).read_text(), page, home))
    for name, text in reference_pages.write().items():
        _write(folder / "reference" / name, text)
    for name, picture in reference_pages.pictures().items():
        (folder / "reference" / name).write_text(picture)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_lists_apart(titled(text)))


def _lists_apart(text: str) -> str:
    """With an empty line before each list, which Markdown wants where GitHub's does not."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        starts = re.match(r"(?:[-*]|\d+\.) ", line) is not None
        if starts and not inside and lines and lines[-1].strip() and not re.match(r"(?:[-*]|\d+\.| ) ?", lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def nav_lines() -> Iterator[str]:
    """The navigation, as YAML."""
    yield "  - Start: index.md"
    for title, pages in NAV.items():
        yield f"  - {title}:"
        yield from (f"      - {page}" for page in pages)


def fetched(site: Path) -> set[str]:
    """What the pages of a site would load from elsewhere when they are opened: scripts, styles, pictures."""
    sources = re.compile(
        r"""<(?:script|img|iframe|link[^>]*rel="?stylesheet"?)\b[^>]*?(?:src|href)="?(https?:)?(//[^\s">]+)"""
    )
    return {found[2] for page in site.rglob("*.html") for found in sources.finditer(page.read_text())}


def main(arguments: list[str]) -> int:
    """Write pages, then the site, into a folder; the exit status of MkDocs, or 1 where pages need a network."""
    folder = Path(arguments[0] if arguments else "build/manual").resolve()
    write_pages(folder / "pages")
    config = folder / "mkdocs.yml"
    nav = "\n".join(nav_lines())
    config.write_text(CONFIG.format(source=folder / "pages", site=folder / "site", nav=nav))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(config)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an announcement of MkDocs' own
    status = subprocess.run(command, check=False, env=quiet).returncode
    if not status and (strangers := fetched(folder / "site")):
        print(f"pages would fetch {', '.join(sorted(strangers))} from the network", file=sys.stderr)
        return 1
    if not status:
        print(f"wrote {folder / 'site' / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
