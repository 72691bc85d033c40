/* SPDX-License-Identifier: MIT */
/*
 * Modules whose code is not C's in one of two ways.
 *
 * Some runtimes find the frames of their code by the return addresses on the stack: to scan them when they collect
 * garbage, to move them, to unwind. They know their own code only, and must find no address of ours: neither in frames
 * of that code nor in those of C functions it calls. So all functions of such a module are recorded by their enters,
 * and its text counts as foreign, which makes enters of the calls from there (as with JIT compilers).
 *
 * Go        moves stacks. A goroutine begins with a return address that no instruction mentions: one byte behind the
 *           entry of runtime.goexit.
 * OCaml     native code: the collector looks up each return address in a hash table and does not end without a find.
 * Mono      images compiled ahead of time: a call's target is read off the call in front of its return address.
 *
 * Code of GHC (Haskell) has another stack, no return addresses on this one, and data in front of each function: nothing
 * of it can be hooked. What has call frame information in such a module is C.
 */
#include "hook/plan_internal.h"
#include "target/functions.h"

#include <elf.h>
#include <string.h>

static bool
has_prefix(const char *text, const char *prefix)
{
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool
has_suffix(const char *text, const char *suffix)
{
  size_t length = strlen(text), wanted = strlen(suffix);
  return length >= wanted && strcmp(text + length - wanted, suffix) == 0;
}

/* True when the file's loaded bytes have the text, its terminating zero included. */
static bool
has_text(const struct ct_elf *elf, const char *text)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(elf, &segments);
  for (size_t i = 0; i < count; i++) {
    const uint8_t *bytes = ct_elf_bytes(elf, segments[i].address, segments[i].file_bytes);
    if (bytes != NULL && memmem(bytes, segments[i].file_bytes, text, strlen(text) + 1) != NULL) {
      return true;
    }
  }
  return false;
}

static bool
has_symbols(const struct planner *planner)
{
  for (size_t i = 0; i < planner->count; i++) {
    if ((planner->functions[i].sources & ~(CT_SRC_EHFRAME | CT_SRC_DYNSYM)) != 0) {
      return true;
    }
  }
  return false;
}

/* A stripped program has only its texts: those of the runtime for native code, not of the one for bytecode. */
static bool
is_stripped_ocaml(const struct planner *planner)
{
  const struct ct_elf *elf = planner->plan->elf;
  return !has_symbols(planner) && has_text(elf, "OCAMLRUNPARAM") && !has_text(elf, "OCAMLLIB");
}

enum ct_runtime
ct_runtime_of(const struct planner *planner)
{
  static const char *const marks[] = {
      "caml_frametable",    /* a program of OCaml */
      "caml_plugin_header", /* OCaml, to be loaded by one */
      "mono_aot_file_info",
  };
  for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
    uint64_t unused;
    if (ct_elf_symbol(planner->plan->elf, marks[i], &unused) == 0) {
      return CT_RUNTIME_READS_RETURNS;
    }
  }
  size_t info = 0, named = 0;
  for (size_t i = 0; i < planner->count; i++) {
    const char *name = planner->functions[i].name;
    if (name == NULL) {
      continue;
    }
    if (has_prefix(name, "runtime.goexit")) {
      return CT_RUNTIME_READS_RETURNS;
    }
    named++;
    info += has_suffix(name, "_info");
  }
  if (is_stripped_ocaml(planner)) {
    return CT_RUNTIME_READS_RETURNS;
  }
  return info * 4 > named ? CT_RUNTIME_NO_RETURNS : CT_RUNTIME_PLAIN;
}

void
ct_runtime_targets(const struct planner *planner, struct ct_targets *targets)
{
  for (size_t i = 0; i < planner->count; i++) {
    const char *name = planner->functions[i].name;
    if (name != NULL && (strcmp(name, "runtime.goexit") == 0 || strcmp(name, "runtime.goexit.abi0") == 0)) {
      ct_targets_add(targets, planner->functions[i].address + 1);
    }
  }
}

/*
 * A tool of valgrind is a static program that translates the code of another one, which it has mapped executable, and
 * some functions of its own: what it reads must be the true bytes. It knows its launcher by this variable.
 */
bool
ct_runtime_translates(const struct ct_elf *elf)
{
  return ct_elf_interp(elf) == NULL && ct_elf_soname(elf) == NULL && ct_elf_type(elf) == ET_EXEC &&
         has_text(elf, "VALGRIND_LAUNCHER");
}

/*
 * ThreadSanitizer divides the address space: a program that finds a mapping elsewhere than where programs, heaps and
 * stacks are when it begins ends itself.
 */
bool
ct_runtime_forbids_stores(const struct ct_elf *elf)
{
  return has_text(elf, "__tsan_init");
}
