#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The folders of src are stages of the data's way: includes run one way, and what knows ptrace or an
instruction set is in one folder. A header belongs to the folder that defines what it declares, and the command sees
nothing of the library but the public ones. Also: every source file carries its licence line, the plain source lists of the
build are fresh, and no merge left its marks."""
import ast
import functools
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, check, expect, main  # noqa: E402
SRC = os.path.join(ROOT, "src")

# What each folder may include from, besides itself.
CHAIN = ["base", "ring", "target", "x86", "plan", "select", "process", "itrace", "hook", "trace", "drain", "record", "control"]
ALLOWED = {folder: set(CHAIN[:i]) for i, folder in enumerate(CHAIN)}
ALLOWED["trace"] = {"base"}                      # the file format knows of no engine
ALLOWED["ring"] = set()                          # layout only, shared with the agent
ALLOWED["target"] = {"base"}
ALLOWED["agent"] = {"ring"}                      # a world of its own
for layer in ("process", "itrace"):              # they know of threads and memory, not of what is hooked
    ALLOWED[layer] -= {"plan", "select"}
ALLOWED["steps"] = {"base", "ring", "target", "x86"}  # a thread's instructions: file, reader and view
ALLOWED["debug"] = {"base", "ring", "x86", "steps"}    # a debugger's view of them
ALLOWED["itrace"].add("steps")                   # the recorder's files
ALLOWED["stream"] = {"base", "trace"}             # a directory of files, whatever is in them
ALLOWED["span"] = {"base", "trace"}
ALLOWED["index"] = {"base", "trace", "span"}
ALLOWED["views"] = {"base", "target", "trace", "span", "index"}
ALLOWED["export"] = {"base", "ring", "x86", "trace", "span", "views", "steps"}  # nothing points back
ALLOWED["sql"] = {"base", "ring", "x86", "trace", "span", "index", "views", "export", "steps"}
# The public headers of all of these, and nothing else.
PUBLIC_ONLY = {"base", "plan", "select", "trace", "record", "control", "stream", "span", "views", "export", "sql", "steps", "debug", "itrace"}
ALLOWED["mcp"] = PUBLIC_ONLY
ALLOWED["cli"] = PUBLIC_ONLY | {"mcp"}
ALLOWED["control"] = {"base", "plan", "select", "trace", "record"}
for layer in ("record", "process"):
    ALLOWED[layer].add("agent")                  # the head of the agent's image
# The folder of each header of include/contrail.
PUBLIC = {"version": "base", "error": "base", "text": "base", "cost": "base", "plan": "plan", "cache": "plan", "exclude": "select",
          "select": "select", "rule": "select",
          "session": "record", "control": "control", "trace": "trace", "recover": "trace", "span": "span", "sql": "sql", "stream": "stream", "view": "views", "report": "views",
          "live": "views", "export": "export", "replay": "views", "filter": "views", "info": "views", "output": "views",
          "hot_functions": "views", "graph": "views", "slowest": "views", "check": "views", "diff": "views", "steps": "steps", "itrace": "itrace", "debug": "debug"}
# Whom the freestanding agent may ask.
AGENT_HEADERS = {"stddef.h", "stdint.h", "stdatomic.h", "stdbool.h", "linux/futex.h", "linux/time_types.h", "linux/mman.h",
                 "asm/unistd.h", "asm/unistd_64.h", "asm/prctl.h", "asm/mman.h", "linux/types.h", "immintrin.h"}
CONTRAIL = re.compile(r"contrail/(\w+)\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
# A system call by a number could be any.
PTRACE = re.compile(r"\bptrace\s*\(|\bPTRACE_[A-Z]+|\b(?:SYS|__NR)_ptrace\b|<sys/ptrace\.h>|<linux/ptrace\.h>|\bsyscall\(\s*\d+")
ZYDIS = re.compile(r"\bZy(?:dis|an)[A-Z]\w*|<Zy(?:dis|core)/")
# What code is made of, or known by: byte strings, tables of bytes, and bytes that are compared with code or stored into it.
BYTES = re.compile(r'"(?:\\x[0-9a-fA-F]{2}){2,}[^"]*"|\{\s*0x[0-9a-fA-F]{2},\s*0x[0-9a-fA-F]{2}\b[^}]*\}'
                   r'|\b\w*(?:code|opcode|insn|bytes)\[[^]]*\](?:\s*&\s*0x[0-9a-fA-F]+\))?\s*[=!]?=\s*0x[0-9a-fA-F]{2}\b')
# And single ones that are known everywhere: int3, nop, call, jmp, ret, push, leave, hlt, syscall, ud2, endbr64, however they are written.
OPCODES = re.compile(r"\b0x(?:cc|90|e8|e9|eb|c2|c3|55|9c|9d|c9|f4|9090|cccc|25ff|15ff|ff25|ff15|050f|0f05|0b0f|0f0b|fa1e0ff3|f30f1efa)[ul]*\b"
                     r"|\"\\x(?:cc|90|e8|e9|eb|c2|c3|55)\"|\b_*asm_*\b[^;]*\.(?:byte|word|long|quad)\b", re.I)
OTHER_BYTES = {"base": {'"\\xEF\\xBF\\xBD"', "0xc2", "0xC2", "0xF4", "0x90"},  # U+FFFD, and what UTF-8 is made of
               "agent": {"0xcc"}}                                         # a debugger's breakpoint: the agent cannot ask x86
DECLARED = re.compile(r"^(?!static|typedef)[A-Za-z][\w \t*]*?[ \t*](\w+)\([^;{}]*\)\s*;", re.M)
DEFINED = re.compile(r"^(?!static\b)[A-Za-z][\w \t*]*\n(\w+)\(", re.M)  # the type has a line of its own
TYPED = re.compile(r"^(?:typedef )?(?:struct|union|enum) (ct_\w+)\s*\{", re.M)
ORDERLESS = re.compile(r"\b(?:atomic_(?:load|store|exchange|fetch_\w+?|compare_exchange_\w+?|flag_\w+?)(?<!_explicit)|__sync_\w+)(?=\()")
LINES_MAX = 800
LONG = re.compile(r"longer than (?:other files|others)", re.I)  # at the head, with the reason
CODE = ("src", "include", "tests", "bench", "examples")
CHAINS_MAX, CHAIN_LENGTH = 8, 3
ASKED = re.compile(r"\bcode == 0\b|\bcode != 0 \? code :")
FUNCTION_LINES_MAX = 70
OPENS = re.compile(r" *(?!if\b|for\b|while\b|switch\b|class\b|}).*(?:\)|=>) ?\{$")  # a function of JavaScript or of the shell
CHILDREN, CHILDREN_CALLS_MAX = ("src/record/process_tree.c", "src/record/handshakes.c"), 10
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


PLANTED = {}  # faults that are tried: lines after the end of these files
ONLY = set()  # for checks that look at one file after the other


@functools.cache
def tree(folder):
    found = {}
    for path, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in sorted(names):
            if name.endswith((".c", ".h", ".S", ".cpp")):
                full = os.path.join(path, name)
                with open(full, encoding="utf-8") as file:
                    found[os.path.relpath(full, ROOT)] = file.read()
    return found


def sources(*folders):
    for folder in folders:
        for path, text in tree(folder).items():
            if not ONLY or path in ONLY:
                yield path, text + PLANTED.get(path, "")


def scripts(*endings):
    for path in sorted(path for folder in ("tests", "bench", "tools", "src") for ending in endings
                       for path in glob.glob(f"{folder}/**/*{ending}", root_dir=ROOT, recursive=True)):
        if not ONLY or path in ONLY:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                yield path, file.read() + PLANTED.get(path, "")


@functools.cache
def bare(text):
    """Without its comments."""
    return COMMENT.sub("", text)


def home(path):
    """The folder that a source file belongs to; None for the umbrella header."""
    parts = path.split(os.sep)
    return parts[1] if parts[0] == "src" else PUBLIC.get(parts[2][:-2])


def reached(folder, quote, name):
    """The folder that an include reaches; None for the system's headers."""
    public = CONTRAIL.fullmatch(name)
    if public:
        return PUBLIC.get(public[1], "?")
    if quote == "<":
        return None
    return name.split("/")[0] if "/" in name else folder


@check("includes run one way")
def check_includes(_):
    for path, text in sources("src", "include"):
        folder, public = home(path), path.startswith("include")
        if public and path.endswith(os.sep + "contrail.h"):
            continue
        if folder not in ALLOWED:
            yield f"{path}: no place in the order of the layers"
            continue
        for quote, name in INCLUDE.findall(text):
            to = reached(folder, quote, name)
            if folder == "agent" and quote == "<" and name not in AGENT_HEADERS:
                yield f"{path}: the agent may not include <{name}>"
            if quote == '"' and ("/" not in name or not os.path.exists(os.path.join(SRC, name))):
                yield f'{path}: "{name}" is not a path below src'
            if public and quote == '"':
                yield f"{path}: a public header may not include {name}"
            if folder in ("cli", "mcp") and quote == '"' and to not in (folder, "mcp"):
                yield f"{path}: the command may include <contrail/...> only, not {name}"
            if to not in (None, folder) and to not in ALLOWED[folder]:
                yield f"{path}: {folder} may not include {name}"


def check_words(pattern, place, word):
    for path, text in sources("src", "include"):
        if home(path) == place:
            continue
        for found in set(pattern.findall(bare(text))):
            yield f"{path}: {word} ({found.strip()}) belongs into src/{place}"


@check("ptrace in src/process only")
def check_ptrace(_):
    return check_words(PTRACE, "process", "ptrace")


@check("Zydis in src/x86 only")
def check_zydis(_):
    return check_words(ZYDIS, "x86", "Zydis")


@check("instruction bytes in src/x86 only")
def check_bytes(_):
    for path, text in sources("src", "include"):
        folder = home(path)
        if folder == "x86" or not path.endswith((".c", ".h")):
            continue
        for found in set(BYTES.findall(bare(text)) + OPCODES.findall(bare(text))) - OTHER_BYTES.get(folder, set()):
            yield f"{path}: bytes of instructions ({' '.join(found.split())[:60]}) belong into src/x86"


@check("definitions where their headers are")
def check_definitions(_):
    """What a header declares is defined in the header's folder."""
    declared = {}
    for path, text in sources("src", "include"):
        if path.endswith(".h"):
            for name in DECLARED.findall(bare(text)):
                declared[name] = (home(path), path)
    for path, text in sources("src"):
        if not path.endswith((".c", ".S")):
            continue
        for name in DEFINED.findall(bare(text)):
            folder, header = declared.get(name, (None, None))
            if folder not in (None, home(path)):
                yield f"{path}: {name} is declared by {header}"


@check("calls run one way")
def check_calls(options):
    """What the objects of a folder use of another one, whatever is included: a prototype may stand anywhere."""
    objects = [path for folder in ("libcontrail.a.p", "contrail.p")
               for path in sorted(glob.glob(os.path.join(options.build, folder, "src_*.c.o")))]
    expect(objects, f"{options.build} is not built")

    def symbols(*words):
        lines = subprocess.run(["nm", "-A", *words, *objects], check=True, capture_output=True, text=True).stdout.splitlines()
        for line in lines:
            path, rest = line.rsplit(":", 1)
            yield os.path.basename(path), rest.split()[-1]

    defined = {symbol: path.split("_")[1] for path, symbol in symbols("--defined-only", "-g")}
    for path, symbol in symbols("-u"):
        folder, to = path.split("_")[1], defined.get(symbol)
        if to not in (None, folder) and to not in ALLOWED[folder]:
            yield f"{path[4:-4]}: {folder} may not use {symbol}, which {to} defines"


@check("no circle of folders")
def check_cycle(_):
    """Of what folders include, whatever the table allows."""
    edges = {}
    for path, text in sources("src", "include"):
        folder = home(path)
        for quote, name in INCLUDE.findall(text):
            to = reached(folder, quote, name)
            if None not in (folder, to) and to != folder:
                edges.setdefault(folder, {}).setdefault(to, path)
    for start in sorted(edges):
        ways, next_ones = {}, [start]  # to each folder, the files that lead there
        while next_ones:
            at = next_ones.pop()
            for to, path in edges.get(at, {}).items():
                if to not in ways:
                    ways[to] = [*ways.get(at, []), path]
                    next_ones.append(to)
        if start in ways:
            yield f"{ways[start][0]}: {start} includes itself, by way of {', '.join(ways[start])}"


@check("no circle of files in src/record")
def check_circles(_):
    """Files of src/record that know each other in a circle, by the functions that they use of one another; and those that include the
    headers of one another, but for the one that all have in common."""
    texts = {path: re.sub(r'"(?:\\.|[^"\\\n])*"', "", bare(text)) for path, text in sources("src/record")
             if path.endswith(".c")}
    defined = {name: path for path, text in texts.items() for name in DEFINED.findall(text)}
    uses = {path: {defined[word] for word in set(re.findall(r"\w+", text)) & set(defined)} - {path}
            for path, text in texts.items()}

    def reachable(start):
        seen, next_ones = set(), [start]
        while next_ones:
            for path in uses[next_ones.pop()] - seen:
                seen.add(path)
                next_ones.append(path)
        return seen

    for path in sorted(path for path in texts if path in reachable(path)):
        yield f"{path}: is in a circle of files"
    common = "src/record/session_internal"
    uses = {}
    for path, text in sources("src/record"):
        for name in INCLUDE.findall(text):
            at, to = os.path.splitext(path)[0], os.path.splitext("src/" + name[1])[0]
            if to.startswith("src/record/") and to != at and common not in (at, to):
                uses.setdefault(at, set()).add(to)
    uses = {path: uses.get(path, set()) for path in set(uses).union(*uses.values())}
    for path in sorted(path for path in uses if path in reachable(path)):
        yield f"{path}.c: is in a circle of files that include one another"


@check(f"files up to {LINES_MAX} lines")
def check_length(_):
    """Longer ones say why at the head."""
    for path, text in [*sources(*CODE), *scripts(".py", ".js", ".mjs", ".css", ".sh")]:
        lines = text.count("\n")
        if lines > LINES_MAX and not LONG.search(text[:4000]):
            yield f"{path}: {lines} lines, more than {LINES_MAX}"


@check(f"functions up to {FUNCTION_LINES_MAX} lines")
def check_function_length(_):
    """From the brace to the brace; the comment at the head of a longer one says why."""
    for path, text in sources(*CODE):
        if path.endswith(".S"):
            continue
        lines = text.split("\n")
        start = None
        for number, line in enumerate(lines):
            if line == "{":
                start = number
            elif line == "}" and start is not None:
                head = start - 1
                while head > 0 and not re.match(r"[A-Za-z_]\w*\(", lines[head]):
                    head -= 1
                comment = "\n".join(lines[max(head - 4, 0):head])
                if number - start + 1 > FUNCTION_LINES_MAX and "longer than others" not in comment:
                    yield f"{path}:{head + 1}: {number - start + 1} lines in a function, more than {FUNCTION_LINES_MAX}"
                start = None


def has_far_ends(text):
    """Whether a function may be too long: the next one that is no part of it begins far from it. Parsing takes ten times as long."""
    lines, opened = text.count("\n") + 1, []
    for found in re.finditer(r"^( *)(?:async )?(?:def|class) ", text + "\ndef ", re.M):
        number = text.count("\n", 0, found.start()) + 1
        while opened and opened[-1][0] >= len(found[1]):
            if min(number, lines) - opened.pop()[1] > FUNCTION_LINES_MAX:
                return True
        opened.append((len(found[1]), number))
    return False


@check(f"functions of scripts up to {FUNCTION_LINES_MAX} lines")
def check_script_function_length(_):
    """Of those in Python by their syntax; of those in JavaScript and of the shell's from the line that opens one to the brace in its column."""
    for path, text in scripts(".py"):
        if not has_far_ends(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.end_lineno - node.lineno + 1} lines in {node.name}, more than {FUNCTION_LINES_MAX}"
    for path, text in scripts(".js", ".mjs", ".sh"):
        opened = []  # indent, and where
        for number, line in enumerate(text.split("\n"), 1):
            indent = len(line) - len(line.lstrip(" "))
            if OPENS.match(line):
                opened.append((indent, number))
            elif line.lstrip().startswith("}"):
                while opened and opened[-1][0] >= indent:
                    column, start = opened.pop()
                    if column == indent and number - start + 1 > FUNCTION_LINES_MAX:
                        yield f"{path}:{start}: {number - start + 1} lines in a function, more than {FUNCTION_LINES_MAX}"


@check("a command a file")
def check_commands(_):
    """As src/cli/command.h says: each source file of the command line ends in the entry of one command at most."""
    for path, text in sources("src/cli"):
        found = re.findall(r"^const struct ct_command ct_command_(\w+) = ", bare(text), re.M)
        if len(found) > 1:
            yield f"{path}: has the commands {', '.join(found)}"


@check(f"chains of `if (code == 0)` in {CHAINS_MAX} functions at most")
def check_chains(_):
    """Who asks three times whether all is well so far leaves at the first failure: by goto to what is to be released, or in a function of its own."""
    found = []
    for path, text in sources("src"):
        lines, start = text.split("\n"), None
        for number, line in enumerate(lines):
            if line == "{":
                start = number
            elif line == "}" and start is not None:
                count = sum(len(ASKED.findall(one)) for one in lines[start:number])
                found += [f"{path}:{start + 1}: asks {count} times for code == 0"] * (count >= CHAIN_LENGTH)
                start = None
    if len(found) > CHAINS_MAX:
        yield from found


@check("labels are named for what is done there")
def check_labels(_):
    """goto goes to what is to be released, or done before the return: free_rows, close_trace; not to a mere end."""
    for path, text in sources("src"):
        for name in re.findall(r"\bgoto (end|out|fail|done|error|cleanup|exit)\w*;", bare(text)):
            yield f"{path}: goto {name} does not say what for"


@check(f"children speak to sessions through {CHILDREN_CALLS_MAX} functions at most")
def check_children(_):
    """What followed children do is apart from sessions: the tree and the handshakes call few of a session's functions."""
    texts = dict(sources("src/record"))
    called, own = set(), set()
    for path in CHILDREN:
        called |= set(re.findall(r"\b((?:ct_)?session_\w+)\(", bare(texts[path])))
        own |= set(DEFINED.findall(texts[path]))
    if not called - own or len(called - own) > CHILDREN_CALLS_MAX:
        yield f"{', '.join(CHILDREN)} call {len(called - own)} functions of a session: {', '.join(sorted(called - own))}"


@check("atomic operations name their order")
def check_orders(_):
    """None is sequentially consistent because nothing is said."""
    for path, text in sources("src", "include"):
        for name in ORDERLESS.findall(bare(text)):
            yield f"{path}: {name}: its order is not named"


@check("no two types of one name")
def check_types(_):
    """Of those that are the project's everywhere (ct_), each stands in one place; files may have small ones of their own."""
    homes = {}
    for path, text in sources("src", "include"):
        for name in TYPED.findall(bare(text)):
            homes.setdefault(name, []).append(path)
    for name, paths in homes.items():
        if len(paths) > 1:
            yield f"{paths[-1]}: {name} is a type in {', '.join(paths[:-1])}, too"


@check("each form of the emitter is compared with the assembler")
def check_forms(_):
    """By name, in the unit test, where macros put some names together; the helpers that forms are made of are left out."""
    helpers = {"u8", "u32", "u64", "bytes", "rel32", "rr", "rm", "opcode_reg", "form", "label", "alu_imm", "alu_mem_imm", "vector_mem"}
    test = bare(tree("tests")["tests/unit/x86_emit_test.c"])
    for path, text in sources("src"):
        if path not in ("src/x86/emit.h", "src/x86/emit_vector.h"):
            continue
        for name in re.findall(r"^ct_emit_(\w+)\(", bare(text), re.M):
            if name not in helpers and not re.search(rf"\bct_emit_{name}\(|\bPAIR\({name},", test):
                yield f"{path}: ct_emit_{name} is not in tests/unit/x86_emit_test.c"


@check("forms of the emitter, not bytes, in src/x86")
def check_anonymous(_):
    """Code that is emitted has the name of its form: bytes stand in the emitter alone. What DWARF has is no code."""
    for path, text in sources("src"):
        if home(path) != "x86" or path in ("src/x86/emit.h", "src/x86/emit_vector.h", "src/x86/trampoline_unwind.c"):
            continue
        for found in re.findall(r"ct_emit_(?:u8|bytes)\([^;]*\b0x[0-9a-f]{2}\b[^;]*;", bare(text)):
            if "code[" not in found and "modrm" not in found and "rex" not in found:  # the program's own instruction, with another operand
                yield f"{path}: {found} is no form of src/x86/emit.h"


def faults_of(function, options, path, line):
    PLANTED[path] = line + "\n"
    ONLY.update({path} if function not in (check_definitions, check_circles, check_types, check_cycle, check_chains) else ())
    try:
        return [fault for fault in function(options) if fault.startswith(f"{path}:")]
    finally:
        PLANTED.clear()
        ONLY.clear()


# What each of the checks above is there for: it says so when the line stands in that file.
FAULTS = {
    "src/hook/install.c": [(check_bytes, 'static const char bytes[] = "\\x48\\x89\\xe5";'),
                           (check_bytes, "static const unsigned char bytes[] = {0x48, 0x89, 0xe5};"),
                           (check_ptrace, "static long f(void)\n{\n  return syscall(101, 0, 0, 0, 0);\n}")],
    "src/process/stop.c": [(check_bytes, "static bool is_trap(uint8_t byte)\n{\n  return byte == 0xcc;\n}"),
                           (check_definitions, "int\nct_session_pause(struct ct_session *session)\n{\n}"),
                           (check_includes, '#include "record/session_internal.h"')],
    "src/record/loop.c": [(check_bytes, "static void f(void)\n{\n  __asm__ volatile(\".byte 1\");\n}"),
                          (check_ptrace, "static long f(void)\n{\n  return ptrace(PTRACE_CONT, 0, 0, 0);\n}")],
    "src/record/manifest.c": [(check_circles, "int\nsession_f(void)\n{\n  return session_main(NULL) != NULL;\n}")],
    "src/record/modules.c": [(check_circles, '#include "record/manifest.h"')],
    "src/cli/mark.c": [(check_commands, "const struct ct_command ct_command_marks = {0};")],
    "src/export/html/flame.js": [(check_script_function_length, "function f(a) {\n" + "  a();\n" * 70 + "}")],
    "tests/graph.py": [(check_script_function_length, "def f():\n" + "    f()\n" * 70)],
    "src/plan/plan.c": [(check_zydis, "static ZydisDecoder decoder;"),
                        (check_includes, '#include "process/process.h"')],
    "src/trace/cut.c": [(check_cycle, '#include "views/report.h"')],
    "src/views/groups.c": [(check_chains, "static int\nf(int code)\n{\n" + "  code = code == 0 ? f(code) : code;\n" * 3 + "  return code;\n}")],
    "src/views/paths.c": [(check_labels, "static int\nf(void)\n{\n  goto out;\nout:\n  return 0;\n}")],
    "src/base/json.c": [(check_includes, '#include "trace/batch.h"')],
    "src/drain/sampling.c": [(check_orders, "static void f(atomic_int *n)\n{\n  atomic_fetch_add(n, 1);\n}")],
    "src/views/report.c": [(check_types, "struct ct_image {\n  int fd;\n};")],
    "src/x86/emit.h": [(check_forms, "static inline void\nct_emit_hlt(struct ct_code *code)\n{\n}")],
    "src/x86/translate.c": [(check_anonymous, "static void f(struct ct_code *out)\n{\n  ct_emit_u8(out, 0xf0);\n}"),
                            (check_anonymous, "static void f(struct ct_code *out)\n{\n  ct_emit_bytes(out, (const uint8_t[]){0xff, 0x25}, 2);\n}")],
    "src/itrace/tracer.c": [(check_ptrace, "static const int request = PTRACE_SEIZE;")],
}


@check("faults that are planted are seen")
def check_planted(options):
    for path, tries in FAULTS.items():
        for function, line in tries:
            if not faults_of(function, options, path, line):
                yield f"{function.__doc__ or function.__name__}: not seen in {path}: {line}"


@check("licence lines")
def check_licence(_):
    for path, text in sources("src", "include", "tests", "bench", "examples"):
        if "SPDX-License-Identifier: MIT" not in text[:200]:
            yield f"{path}: no licence line"


@check("source lists fresh")
def check_lists(_):
    result = subprocess.run([os.path.join(ROOT, "tools", "sources.sh"), "--check"], capture_output=True, text=True)
    if result.returncode:
        yield result.stderr.strip()


@check("no conflicts left")
def check_merges(_):
    """No line that a merge left behind, in any file of the tree."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith((".git", "build"))]
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                if re.search(rb"(?m)^(<<<<<<<|>>>>>>>) ", file.read()):
                    yield f"{os.path.relpath(path, ROOT)}: a conflict that was not resolved"


if __name__ == "__main__":
    main(__doc__)
