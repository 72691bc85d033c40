/* SPDX-License-Identifier: MIT */
/*
 * Modules whose code is not C's in one of two ways.
 *
 * Some runtimes find the frames of their code by the return addresses on the stack: to scan them when they collect
 * garbage, to move them, to unwind. They know their own code only, and must find no address of ours: neither in frames
 * of that code nor in those of C functions it calls. So all functions of such a module are recorded by their enters,
 * and its text counts as foreign, which makes enters of the calls from there (as with JIT compilers).
 *
 * OCaml     native code: the collector looks up each return address in a hash table and does not end without a find.
 * Mono      images compiled ahead of time: a call's target is read off the call in front of its return address.
 *
 * Go walks its stacks too, and moves them, but C is called on another one. Its hooks are stackless
 * (CT_HOOK_STACKLESS): enter only, nothing of the stack is looked at but the pointer. C code in the same module (cgo)
 * has call frame information, Go's has none. Two things are special.
 *   - A function asks for stack first:   [lea -n(%rsp), %r12]; cmp 16(%r14), %rsp; jbe more; ...; more: call morestack;
 *     jmp function. With the stack moved it begins anew. So the call is recorded after the jbe: once, and where there
 * is known to be stack (functions that do not ask leave 800 bytes less what they use, in Go 1.19 at least 250).
 *   - runtime.goexit is never called. Where it goes on after its first byte, a nop, lies at the end of each stack as
 * if it had called the goroutine's function.
 *
 * Code of GHC (Haskell) has another stack, no return addresses on this one, and data in front of each function: nothing
 * of it can be hooked. What has call frame information in such a module is C.
 *
 * And a static program without symbols whose frames are unwound (C++, Rust): the unwinder is in it, and cannot learn
 * about trampolines, since it cannot be found.
 */
#include "plan/plan_internal.h"
#include "target/functions.h"
#include "target/golang.h"
#include "x86/decode.h"
#include "x86/known.h"

#include <ctype.h>
#include <elf.h>
#include <string.h>

const char *
ct_runtime_text(enum ct_runtime runtime)
{
  switch (runtime) {
  case CT_RUNTIME_READS_RETURNS:
    return "its runtime finds frames by their return addresses";
  case CT_RUNTIME_GO:
    return "Go's runtime walks and moves its stacks by return addresses";
  case CT_RUNTIME_HIDDEN_UNWINDER:
    return "its unwinder has no name and cannot learn about hooks";
  default:
    return NULL;
  }
}

static bool
has_prefix(const char *text, const char *prefix)
{
  return text != NULL && strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool
has_suffix(const char *text, const char *suffix)
{
  size_t length = strlen(text), wanted = strlen(suffix);
  return length >= wanted && strcmp(text + length - wanted, suffix) == 0;
}

/* True when these are in the file's loaded bytes, outside its executable sections. */
static bool
has_bytes(const struct ct_elf *elf, const char *wanted, size_t count_bytes)
{
  const struct ct_elf_segment *segments;
  const struct ct_elf_section *texts;
  size_t count = ct_elf_segments(elf, &segments), text_count = ct_elf_exec_sections(elf, &texts);
  for (size_t i = 0; i < count; i++) {
    uint64_t at = segments[i].address, end = at + segments[i].file_bytes;
    for (size_t k = 0; at < end; k++) {
      const struct ct_elf_section *text = k < text_count ? &texts[k] : NULL; /* they are sorted */
      uint64_t stop = text != NULL && text->address < end ? text->address : end;
      const uint8_t *bytes = at < stop ? ct_elf_bytes(elf, at, stop - at) : NULL;
      if (bytes != NULL && memmem(bytes, stop - at, wanted, count_bytes) != NULL) {
        return true;
      }
      at = text == NULL || stop == end ? end : text->address + text->size > at ? text->address + text->size : at;
    }
  }
  return false;
}

/* The same of a text, its terminating zero included. */
static bool
has_text(const struct ct_elf *elf, const char *text)
{
  return has_bytes(elf, text, strlen(text) + 1);
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

static bool
unwinder_is_hidden(const struct planner *planner)
{
  const struct ct_elf *elf = planner->plan->elf;
  uint64_t address;
  if (ct_elf_interp(elf) != NULL || ct_elf_soname(elf) != NULL || ct_elf_entry(elf) == 0 ||
      ct_elf_symbol(elf, "_Unwind_Find_FDE", &address) == 0) {
    return false;
  }
  for (size_t i = 0; i < planner->count; i++) {
    if ((planner->functions[i].sources & CT_SRC_DYNSYM) != 0) {
      return false;
    }
  }
  uint32_t count = ct_cfi_count(elf);
  for (uint32_t i = 0; i < count; i++) {
    struct ct_cfi_fde fde;
    if (ct_cfi_get(elf, i, &fde) == 0 && fde.lsda != 0) {
      return true;
    }
  }
  return false;
}

enum ct_runtime
ct_runtime_of(const struct planner *planner)
{
  static const char *const marks[] = {
      "caml_frametable",    /* a program of OCaml */
      "caml_plugin_header", /* OCaml, to be loaded by one */
      "mono_aot_file_info",
  };
  const struct ct_elf *elf = planner->plan->elf;
  uint64_t unused;
  for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
    if (ct_elf_symbol(elf, marks[i], &unused) == 0) {
      return CT_RUNTIME_READS_RETURNS;
    }
  }
  if (ct_elf_is_go(elf)) {
    return CT_RUNTIME_GO;
  }
  size_t info = 0, named = 0;
  for (size_t i = 0; i < planner->count; i++) {
    const char *name = planner->functions[i].name;
    if (name == NULL) {
      continue;
    }
    if (has_prefix(name, "runtime.goexit")) {
      return CT_RUNTIME_GO;
    }
    named++;
    info += has_suffix(name, "_info");
  }
  if (is_stripped_ocaml(planner)) {
    return CT_RUNTIME_READS_RETURNS;
  }
  if (info * 4 > named) {
    return CT_RUNTIME_NO_RETURNS;
  }
  return unwinder_is_hidden(planner) ? CT_RUNTIME_HIDDEN_UNWINDER : CT_RUNTIME_PLAIN;
}

static enum ct_refusal
adapt_to_go(const struct planner *planner, size_t i, struct ct_planned *planned)
{
  const struct ct_elf *elf = planner->plan->elf;
  /* and runtime.goexit.abi0, but not runtime.goexit1 */
  if (has_prefix(planned->name, "runtime.goexit") && !isdigit((unsigned char)planned->name[14])) {
    return CT_REFUSED_RUNTIME;
  }
  planned->mode = CT_HOOK_STACKLESS;
  if (has_prefix(planned->name, "syscall.rawVforkSyscall")) {
    planned->callout = CT_CALLOUT_PARK; /* the number of the system call comes as an argument */
  } else if (has_prefix(planned->name, "runtime/internal/syscall.Syscall6") ||
             has_prefix(planned->name, "internal/runtime/syscall.Syscall6")) {
    planned->callout = CT_CALLOUT_GO_SYSCALL;
  }
  size_t size = ct_elf_code_left(elf, planned->address);
  size = size < planned->size ? size : planned->size;
  const uint8_t *code = ct_elf_bytes(elf, planned->address, size);
  size_t check = code != NULL && planned->self_branch ? ct_stack_check_bytes(code, size) : 0;
  struct ct_window window;
  if (check != 0 && planned->tactic == CT_TACTIC_JUMP &&
      ct_window_find(code, size, planned->address, check, &window) == CT_WINDOW_OK && window.length == check) {
    planned->window = window;
    planned->event_last = 1;
  }
  return CT_REFUSED_NOT;
}

enum ct_refusal
ct_runtime_adapt(const struct planner *planner, size_t i, struct ct_planned *planned)
{
  switch (planner->plan->runtime) {
  case CT_RUNTIME_GO:
    return planner->functions[i].fde == CT_FDE_NONE ? adapt_to_go(planner, i, planned) : CT_REFUSED_NOT;
  case CT_RUNTIME_READS_RETURNS:
  case CT_RUNTIME_HIDDEN_UNWINDER:
    planned->mode = CT_HOOK_ENTER;
    return CT_REFUSED_NOT;
  default:
    return CT_REFUSED_NOT;
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
 * stacks are when it begins ends itself. Its runtime is in a library, or in the program: then it may have no names, but
 * says this. Compilers, which only name __tsan_init in a text, must not be taken for such programs.
 */
bool
ct_runtime_forbids_stores(const struct ct_elf *elf)
{
  static const char complaint[] = "FATAL: ThreadSanitizer: unexpected memory mapping ";
  bool is_library = ct_elf_interp(elf) == NULL && ct_elf_soname(elf) != NULL; /* as a library it has the symbol */
  return ct_elf_links(elf, "__tsan_init") || (!is_library && has_bytes(elf, complaint, sizeof(complaint) - 1));
}
