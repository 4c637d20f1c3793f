"""Slides of the course: slides.py BROWSER FOLDER writes FOLDER/week_N.pdf for each week of the syllabus in
docs/exercises/README.md. A chapter of the book gives its question, formulas, tables, lists, pictures, programs,
output and exercises under their headings."""
import html
import pathlib
import re
import subprocess
import sys

BOOK = pathlib.Path(__file__).resolve().parent / "book"
STYLE = """<meta charset="utf-8"><style>
@page { size: 1280px 720px; margin: 0 }
body { margin: 0; color: #1f2937 }
section { box-sizing: border-box; width: 1280px; height: 720px; padding: 40px 70px; break-after: page; overflow: hidden;
          display: flex; flex-direction: column; font: 30px/1.4 "DejaVu Sans", sans-serif }
h1 { font-size: 56px; margin: 150px 0 40px } h2 { font-size: 36px; margin: 0 0 22px }
small { font-size: 18px; color: #6b7280; text-align: right }
p { margin: 0 0 0.8em } p.formula { padding-left: 1em; font-size: 1.2em } p.caption { text-align: center; font-size: 0.8em; margin: 0.5em 0 0 }
img { flex: 1; min-height: 0; object-fit: contain }
ul, ol { margin: 0 } li { margin-bottom: 0.4em }
table { border-collapse: collapse; font-size: 0.87em } th { text-align: left }
th, td { border-bottom: 1px solid #d1d5db; padding: 0.3em 0.6em; vertical-align: top }
pre { margin: 0; font: 0.8em/1.3 "DejaVu Sans Mono", monospace } pre.wrap { white-space: pre-wrap }
code { font-size: 0.9em }
</style>"""
# What is too large for its slide gets a smaller font.
FIT = """<script>
for (const slide of document.querySelectorAll("section"))
  for (let size = 30; size > 12 && (slide.scrollHeight > 720 ||
       [...slide.children].some(child => child.scrollWidth > child.clientWidth)); --size)
    slide.style.fontSize = size + "px";
</script>"""


def inline(text):
    parts = re.split(r"`([^`]*)`", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", html.escape(" ".join(text.split()), quote=False)))
    for i in range(0, len(parts), 2):  # between code, where a * is a product
        parts[i] = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", parts[i]))
        parts[i + 1:i + 2] = [f"<code>{code}</code>" for code in parts[i + 1:i + 2]]
    return "".join(parts)


def items(text):
    tag = "ol" if text[0].isdigit() else "ul"
    entries = re.split(r"^(?:-|\d+\.) ", text, flags=re.M)[1:]
    return f"<{tag}>" + "".join(f"<li>{inline(entry)}</li>" for entry in entries) + f"</{tag}>"


def table(text):
    head, _, *rows = ([inline(cell) for cell in line[1:-1].split("|")] for line in text.split("\n"))
    return ("<table><tr><th>" + "</th><th>".join(head) + "</th></tr>" +
            "".join("<tr><td>" + "</td><td>".join(row) + "</td></tr>" for row in rows) + "</table>")


def slides(path):
    text = path.read_text()
    title = re.match(r"# (.*)", text)[1]
    question = re.search(r"\*\*Question\.\*\* (.*?)\n\n", text, re.S)[1]
    yield f"<h1>{inline(title)}</h1><p>{inline(question)}</p>"
    heading, before = "Idea", ""
    # Blocks are separated by blank lines, which code may contain too.
    for block in re.findall(r"(?:^<!--[^\n]*-->\n)?(^```.*?^```|^[^\n].*?)(?:\n\n|\n*\Z)", text, re.S | re.M):
        shown, body = "", f"<p>{inline(before)}</p>" if before else ""
        if block.startswith("## "):
            heading = block[3:]
        elif block.startswith("```"):
            lines = block.split("\n")[1:-1]
            if lines[0].startswith("- "):
                shown = items("\n".join(lines))
            else:
                wrap = " class=wrap" if max(map(len, lines)) > 112 else ""
                shown, body = f"<pre{wrap}>{html.escape(chr(10).join(lines))}</pre>", ""
        elif picture := re.match(r"!\[([^]]*)\]\(([^)]*)\)$", block, re.S):
            shown = f'<img src="{(BOOK / picture[2]).as_uri()}"><p class="caption">{inline(picture[1])}</p>'
            body = ""
        elif block.startswith("> "):
            shown = f"<p class=formula>{inline(block[2:])}</p>"
        elif re.match(r"- |\d+\. ", block):
            shown = items(block)
        elif block.startswith("|"):
            shown = table(block)
        # A formula, list or table comes with the paragraph before it.
        before = "" if shown or block.startswith(("#", "<")) else block.removeprefix("**Idea.** ")
        if shown:
            yield f"<small>{inline(title)}</small><h2>{inline(heading)}</h2>{body}{shown}"
        if heading == "Exercises" and shown:
            return


browser, folder = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
folder.mkdir(parents=True, exist_ok=True)
syllabus = (BOOK.parent / "exercises/README.md").read_text()
for week, chapters in re.findall(r"^\| (\d+) \| chapters ([^;|]*)", syllabus, re.M):
    chapters = re.sub(r"(\d+) to (\d+)", lambda m: " ".join(map(str, range(int(m[1]), int(m[2]) + 1))), chapters)
    pages = [slide for n in re.findall(r"\d+", chapters) for slide in slides(next(BOOK.glob(f"{int(n):02}_*.md")))]
    page, pdf = folder / f"week_{week}.html", folder / f"week_{week}.pdf"
    page.write_text(STYLE + "".join(f"<section>{slide}</section>" for slide in pages) + FIT)
    subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                    "--no-pdf-header-footer", f"--print-to-pdf={pdf}", page.as_uri()], check=True, stderr=subprocess.DEVNULL)
    print(f"{pdf}: {len(pages)} slides")
