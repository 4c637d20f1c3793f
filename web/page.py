"""Makes the page: page.py MODULE.js OUTPUT.html [NATIVE]. With the native program, for the page's test, it adds what that
program answers to each example."""
import json
import pathlib
import subprocess
import sys

web = pathlib.Path(__file__).parent
module, output, *native = sys.argv[1:]
examples = {path.stem[3:]: path.read_text() for path in sorted((web / "examples").glob("*.txt"))}
answers = {name: subprocess.run(native, input=text, capture_output=True, text=True, check=True).stdout
           for name, text in examples.items()} if native else {}


def in_script(data):
    return json.dumps(data).replace("<", "\\u003c")


page = (web.parent / "watch/page.html").read_text().replace("{{DATA}}", "")
page = page.replace("voxgrad: a watched run", "voxgrad in a page").replace("{{EDITOR}}", (web / "editor.html").read_text())
for mark, text in (("{{EXAMPLES}}", in_script(examples)), ("{{EXPECTED}}", in_script(answers)),
                   ("{{MODULE}}", pathlib.Path(module).read_text().replace("</script", "<\\/script"))):
    page = page.replace(mark, text)
pathlib.Path(output).write_text(page)
