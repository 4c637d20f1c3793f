"""Slides of the course: slides.py BROWSER FOLDER writes FOLDER/week_N.pdf for each week of the syllabus in
docs/exercises/README.md. A chapter of the book gives its question, formulas, pictures, programs, output and
exercises under their headings."""
import html
import pathlib
import re
import subprocess
import sys

BOOK = pathlib.Path(__file__).resolve().parent / "book"
STYLE = """<meta charset="utf-8"><style>
@page { size: 1280px 720px; margin: 0 }
body { margin: 0; font: 30px/1.4 "DejaVu Sans", sans-serif; color: #1f2937 }
section { box-sizing: border-box; height: 720px; padding: 40px 70px; break-after: page; overflow: hidden }
h1 { font-size: 56px; margin: 150px 0 40px } h2 { font-size: 36px; margin: 0 0 22px }
small { float: right; font-size: 18px; color: #6b7280 }
img { display: block; max-width: 100%; max-height: 520px; margin: auto; min-height: 300px }
p.caption { text-align: center; font-size: 24px } li { margin-bottom: 12px; font-size: 26px }
pre { margin: 0; font-family: "DejaVu Sans Mono", monospace; line-height: 1.3; white-space: pre-wrap }
code { font-size: 0.9em }
</style>"""


def inline(text):
    parts = re.split(r"`([^`]*)`", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", html.escape(" ".join(text.split()), quote=False)))
    for i in range(0, len(parts), 2):  # between code, where a * is a product
        parts[i] = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", parts[i]))
        parts[i + 1:i + 2] = [f"<code>{code}</code>" for code in parts[i + 1:i + 2]]
    return "".join(parts)


def code(text):
    lines = text.rstrip().split("\n")
    columns = 1 if len(lines) <= 30 else 2
    size = min(24, 590 / 1.3 / -(-len(lines) // columns), max(15, 1140 / columns / 0.61 / max(map(len, lines))))
    return f'<pre style="font-size: {size:.1f}px; columns: {columns}">{html.escape(text.rstrip())}</pre>'


def slides(path):
    text = path.read_text()
    title = re.match(r"# (.*)", text)[1]
    question = re.search(r"\*\*Question\.\*\* (.*?)\n\n", text, re.S)[1]
    yield f"<h1>{inline(title)}</h1><p>{inline(question)}</p>"
    heading = "Idea"
    parts = (r"^## (?P<head>[^\n]*)$|^```\w*\n(?P<code>.*?)^```$|^!\[(?P<alt>[^]]*)\]\((?P<image>[^)]*)\)$"
             r"|^> (?P<rule>[^\n]*)$")
    for part in re.finditer(parts, text, re.S | re.M):
        head = f"<small>{inline(title)}</small><h2>{inline(part['head'] or heading)}</h2>"
        if part["head"]:
            heading = part["head"]
        if heading == "Exercises":
            items = re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n|\Z)", text[part.end():], re.S | re.M)
            yield head + "<ol>" + "".join(f"<li>{inline(item)}</li>" for item in items) + "</ol>"
            return
        if part["rule"] or (part["code"] or "").startswith("- "):  # with the paragraph before it
            before = text[:part.start()].split("\n\n")[-2]
            yield head + f'<p>{inline(before)}</p><p>{inline(part["rule"] or part["code"][2:])}</p>'
        elif part["code"]:
            yield head + code(part["code"])
        if part["image"]:
            yield head + f'<img src="{(BOOK / part["image"]).as_uri()}"><p class="caption">{inline(part["alt"])}</p>'


browser, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
folder.mkdir(parents=True, exist_ok=True)
syllabus = (BOOK.parent / "exercises/README.md").read_text()
for week, chapters in re.findall(r"^\| (\d+) \| chapters ([^;|]*)", syllabus, re.M):
    chapters = re.sub(r"(\d+) to (\d+)", lambda m: " ".join(map(str, range(int(m[1]), int(m[2]) + 1))), chapters)
    pages = [slide for n in re.findall(r"\d+", chapters) for slide in slides(next(BOOK.glob(f"{int(n):02}_*.md")))]
    page, pdf = folder / f"week_{week}.html", folder / f"week_{week}.pdf"
    page.write_text(STYLE + "".join(f"<section>{slide}</section>" for slide in pages))
    subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                    "--no-pdf-header-footer", f"--print-to-pdf={pdf}", page.as_uri()], check=True, stderr=subprocess.DEVNULL)
    print(f"{pdf}: {len(pages)} slides")
