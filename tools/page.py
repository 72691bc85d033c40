#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Puts the page of `contrail html` together: page.html with the style and the scripts in it, and a policy that lets exactly
these run. What goes before the data and what goes after it become HEAD and TAIL, and ASM an assembly file that carries both.

    page.py HEAD TAIL ASM page.html style.css SCRIPT...
"""
import base64
import hashlib
import os
import sys
import zlib

PIECES = ("ct_html_head", "ct_html_tail")


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def assembly(paths, contents):
    lines = [f"/* {zlib.crc32(b''.join(contents)):08x} */", '  .section .rodata.html, "a", @progbits']
    for name, path in zip(PIECES, paths):
        lines += [f"  .globl {name}", f"  .type {name}, @object", f"{name}:", f'  .incbin "{os.path.realpath(path)}"', f"  .globl {name}_end",
                  f"{name}_end:", f"  .size {name}, . - {name}"]
    lines += ['  .section .note.GNU-stack, "", @progbits', '  .section .note.gnu.property, "a"', "  .balign 8", "  .long 4, 16, 5", '  .asciz "GNU"',
              "  .long 0xc0000002, 4, 3, 0"]  # no code: IBT and SHSTK hold, as tools/blob.sh says
    return "\n".join(lines) + "\n"


def main():
    head, tail, asm, page, style, *scripts = sys.argv[1:]
    read = lambda path: open(path, encoding="utf-8").read()
    style = read(style)
    script = "'use strict';\n" + "".join(read(path) for path in scripts)
    assert "</" not in script and "</" not in style and "@DATA@" not in script, "it would end its element"
    policy = f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; base-uri 'none'; form-action 'none'"
    before, after = read(page).replace("@POLICY@", policy).replace("@STYLE@", style).split("@DATA@\n")
    contents = [before.encode(), after.replace("@SCRIPT@", script).encode()]
    for path, content in zip((head, tail), contents):
        with open(path, "wb") as file:
            file.write(content)
    with open(asm, "w", encoding="utf-8") as file:
        file.write(assembly((head, tail), contents))


main()
