#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pages of the documentation as a C file, for what is asked about them at run time: mcp_page(name).

    tools/pages.py PAGE.md... > pages.c
"""
import os
import sys


def literal(text):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?")
    return '"' + quoted + '\\n"'


def main():
    print('#include "mcp/server.h"\n\n#include <string.h>\n')
    names = []
    for path in sys.argv[1:]:
        name = os.path.splitext(os.path.basename(path))[0]
        names.append(name)
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        print(f"static const char page_{name}[] =")
        print("\n".join("  " + literal(line) for line in lines) + ";\n")
    print("const char *\nmcp_page(const char *name)\n{")
    print("\n".join(f'  if (strcmp(name, "{name}") == 0) {{\n    return page_{name};\n  }}' for name in names))
    print("  return NULL;\n}")


if __name__ == "__main__":
    main()
