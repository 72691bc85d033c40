/* SPDX-License-Identifier: MIT */
/*
 * The planner; see plan.h. For each function of the file, in this order:
 *
 *   1. Is it a callable entry? By its CFI row; a function without CFI counts as callable when a symbol says it is one.
 *   2. Its body is scanned once (x86/scan.c): branch targets of the whole module, and facts.
 *   3. Its window: the whole instructions under the jump. At the entry, or after endbr64; into verified padding when
 * the code ends early. A branch, another entry or a code reference into bytes 1.. of the window is a refusal.
 *   4. Its mode: call-through, unless a fact says that its return-address slot must hold the true address.
 */
#include "plan/plan_internal.h"

#include "base/clock.h"
#include "target/functions.h"
#include "target/source.h"
#include "target/lsda.h"
#include "x86/known.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const struct {
  const char *key, *text;
} refusals[CT_REFUSED_COUNT] = {
    [CT_REFUSED_NOT] = {"none", "hooked"},
    [CT_REFUSED_ODD_ENTRY] = {"not-callable", "its first instruction has no call frame (CFA is not rsp+8)"},
    [CT_REFUSED_SIGNAL_FRAME] = {"signal-frame", "it is the return path of a signal handler"},
    [CT_REFUSED_NO_CFI] = {"no-cfi", "it has no call frame information, which the rest of its module has"},
    [CT_REFUSED_PART] = {"part", "it is a part of another function, split off by the compiler"},
    [CT_REFUSED_NO_CODE] = {"no-code", "its bytes are not code of the file"},
    [CT_REFUSED_UNDECODABLE] = {"undecodable", "its first bytes are no known instructions"},
    [CT_REFUSED_TOO_SHORT] = {"too-short", "it is shorter than a jump and has no padding after it"},
    [CT_REFUSED_BRANCH_INTO] = {"branch-into", "a branch goes into the patched bytes"},
    [CT_REFUSED_ENTRY_INTO] = {"entry-into", "another function begins in the patched bytes"},
    [CT_REFUSED_INDIRECT_CALL] = {"indirect-call", "an indirect call returns into the patched bytes"},
    [CT_REFUSED_FLAGS] = {"flags", "it takes or returns values in the flags register"},
    [CT_REFUSED_UNREACHABLE] = {"unreachable", "an operand does not reach from the trampoline"},
    [CT_REFUSED_CHANGED] = {"changed", "its first bytes in memory are not those of the file"},
    [CT_REFUSED_BUSY] = {"busy", "a thread stood in its first bytes when it was to be patched"},
    [CT_REFUSED_PLT] = {"plt", "it is a stub of the procedure linkage table"},
    [CT_REFUSED_EXCLUDED] = {"excluded", "it is excluded"},
    [CT_REFUSED_UNSELECTED] = {"unchosen", "no pattern selects it"},
    [CT_REFUSED_FAULTS] = {"faults", "a signal handler knows the address at which it may fault"},
    [CT_REFUSED_RUNTIME] = {"runtime", "its runtime enters it after its first byte"},
    [CT_REFUSED_CROWDED] = {"crowded", "it needs a stub or a trap of its own, of which there are too many already"},
};

uint8_t
ct_planned_values(const struct ct_planned *planned, enum ct_requested_mode requested)
{
  return planned->mode != CT_HOOK_FULL      ? CT_HOOK_VALUES_NONE
         : requested == CT_REQUESTED_VALUES ? CT_HOOK_VALUES_FEW
         : requested == CT_REQUESTED_DETAIL ? CT_HOOK_VALUES_DETAIL
                                            : CT_HOOK_VALUES_NONE;
}

uint8_t
ct_planned_mode(const struct ct_planned *planned, enum ct_requested_mode requested)
{
  if (requested == CT_REQUESTED_PASSTHROUGH) {
    return CT_HOOK_PASSTHROUGH;
  }
  /* Nothing distinguishes a call from a branch to its own entry when there is no return address to look at. */
  bool may_be_sampled = planned->mode == CT_HOOK_FULL && !planned->self_branch;
  return requested == CT_REQUESTED_LIGHT && may_be_sampled ? CT_HOOK_SAMPLED : planned->mode;
}

const char *
ct_refusal_key(enum ct_refusal refusal)
{
  return refusals[refusal].key;
}

const char *
ct_refusal_text(enum ct_refusal refusal)
{
  return refusals[refusal].text;
}

bool
ct_refusal_is_callable(enum ct_refusal refusal)
{
  switch (refusal) {
  case CT_REFUSED_ODD_ENTRY:
  case CT_REFUSED_SIGNAL_FRAME:
  case CT_REFUSED_NO_CFI:
  case CT_REFUSED_PART:
  case CT_REFUSED_NO_CODE:
  case CT_REFUSED_PLT:
    return false;
  default:
    return true;
  }
}

const char *
ct_tactic_name(enum ct_tactic tactic)
{
  switch (tactic) {
  case CT_TACTIC_JUMP:
    return "jump";
  case CT_TACTIC_ENDBR:
    return "endbr";
  case CT_TACTIC_PADDING:
    return "padding";
  case CT_TACTIC_SHORT:
    return "short";
  case CT_TACTIC_PUN:
    return "pun";
  case CT_TACTIC_EVICT:
    return "evict";
  case CT_TACTIC_INT3:
    return "int3";
  default:
    return "none";
  }
}

static int
compare_address(const void *key, const void *element)
{
  uint64_t address = *(const uint64_t *)key;
  const struct ct_function *function = element;
  return address < function->address ? -1 : address > function->address;
}

/* Index of the function that begins at address, or -1. */
ptrdiff_t
ct_planner_function(const struct planner *planner, uint64_t address)
{
  const struct ct_function *found =
      bsearch(&address, planner->functions, planner->count, sizeof(*found), compare_address);
  return found == NULL ? -1 : found - planner->functions;
}

static void
add_landing_pad(void *context, uint64_t address)
{
  struct planner *planner = context;
  ct_targets_add(&planner->scan.targets, address);
  /* What begins with a landing pad (after a nop or endbr64 at most) is a part: no function does. */
  for (uint64_t back = 0; back <= 4 && back <= address; back++) {
    ptrdiff_t i = ct_planner_function(planner, address - back);
    if (i >= 0 && planner->functions[i].name == NULL) {
      planner->is_part[i] = 1;
    }
  }
}

/* Index of the function that address is in, but not the first byte of, or -1. */
static ptrdiff_t
function_around(const struct planner *planner, uint64_t address)
{
  size_t low = 0, high = planner->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (planner->functions[middle].address <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) {
    return -1;
  }
  const struct ct_function *around = &planner->functions[low - 1];
  return address != around->address && address - around->address < around->size ? (ptrdiff_t)low - 1 : -1;
}

/* Other functions jump to what may be a part. */
struct entry_jump {
  uint32_t part, from;
  bool conditional;
};

static int
compare_entry_jumps(const void *a, const void *b)
{
  const struct entry_jump *x = a, *y = b;
  return x->part != y->part ? (x->part < y->part ? -1 : 1) : x->from != y->from ? (x->from < y->from ? -1 : 1) : 0;
}

/* Those to functions without a name that nothing calls or refers to, sorted. NULL without memory. */
static struct entry_jump *
collect_entry_jumps(const struct planner *planner, size_t *count)
{
  struct entry_jump *jumps = malloc((planner->scan.tail_jump_count + 1) * sizeof(*jumps));
  *count = 0;
  for (size_t i = 0; jumps != NULL && i < planner->scan.tail_jump_count; i++) {
    const struct ct_tail_jump *jump = &planner->scan.tail_jumps[i];
    ptrdiff_t target = ct_planner_function(planner, jump->target);
    if (target >= 0 && planner->functions[target].name == NULL &&
        !ct_targets_has(&planner->scan.called, jump->target)) {
      jumps[(*count)++] = (struct entry_jump){(uint32_t)target, jump->function, jump->conditional};
    }
  }
  if (jumps != NULL) {
    qsort(jumps, *count, sizeof(*jumps), compare_entry_jumps);
  }
  return jumps;
}

/*
 * Compilers move unlikely parts of functions away and give them a frame of their own. Where symbols do not tell
 * (stripped files), such a part is known by this: a function jumps to it, nothing calls it or refers to it, and
 *
 *   - it jumps back into the middle of that function, or
 *   - it uses memory below the stack pointer at its entry's depth. This would be that function's if it is a leaf, and
 *     a hook at the entry would write over it; or
 *   - the jump is a conditional one, and it is not aligned as functions are.
 */
static int
find_parts(struct planner *planner)
{
  size_t count;
  struct entry_jump *jumps = collect_entry_jumps(planner, &count);
  if (jumps == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < count; i++) {
    uint32_t part = jumps[i].part;
    planner->is_part[part] |= (planner->facts[part] & CT_FACT_RED_ZONE) != 0 ||
                              (jumps[i].conditional && planner->functions[part].address % 16 != 0);
  }
  for (size_t i = 0; i < planner->scan.tail_jump_count && count != 0; i++) {
    const struct ct_tail_jump *jump = &planner->scan.tail_jumps[i];
    ptrdiff_t around = function_around(planner, jump->target);
    struct entry_jump back = {jump->function, (uint32_t)around, false};
    if (around >= 0 && bsearch(&back, jumps, count, sizeof(back), compare_entry_jumps) != NULL) {
      planner->is_part[jump->function] = 1;
    }
  }
  free(jumps);
  return 0;
}

/* The unwinder, too, enters functions elsewhere than at their start. */
static void
add_landing_pads(struct planner *planner)
{
  const struct ct_elf *elf = planner->plan->elf;
  uint32_t count = ct_cfi_count(elf);
  for (uint32_t i = 0; i < count; i++) {
    struct ct_cfi_fde fde;
    if (ct_cfi_get(elf, i, &fde) == 0 && fde.lsda != 0) {
      ct_lsda_landing_pads(elf, &fde, add_landing_pad, planner);
    }
  }
}

/* A function that tail-jumps to one that looks at the return-address slot passes it on, and so on backwards. */
static void
follow_tail_jumps(struct planner *planner)
{
  const uint32_t passed_on = CT_FACT_TOUCHES_RA_SLOT | CT_FACT_RET_IMM;
  bool changed = true;
  for (int round = 0; changed && round < 64; round++) {
    changed = false;
    for (size_t i = 0; i < planner->scan.tail_jump_count; i++) {
      const struct ct_tail_jump *jump = &planner->scan.tail_jumps[i];
      ptrdiff_t target = ct_planner_function(planner, jump->target);
      if (target < 0) {
        continue;
      }
      uint32_t more = planner->facts[target] & passed_on & ~planner->facts[jump->function];
      if (more != 0) {
        planner->facts[jump->function] |= more;
        changed = true;
      }
    }
  }
}

static bool
callable(const struct planner *planner, size_t i, enum ct_refusal *refusal)
{
  const struct ct_function *function = &planner->functions[i];
  if ((function->flags & CT_FN_PLT) != 0) {
    *refusal = CT_REFUSED_PLT;
    return false;
  }
  const uint8_t *code = ct_elf_bytes(planner->plan->elf, function->address, CT_PLT_JUMP_BYTES);
  if (planner->plan->runtime == CT_RUNTIME_READS_RETURNS && code != NULL && ct_is_plt_jump(code)) {
    *refusal = CT_REFUSED_PLT; /* Mono reads and patches its own */
    return false;
  }
  bool unnamed_inside = function->name == NULL && (function->flags & CT_FN_INSIDE) != 0;
  if ((function->flags & CT_FN_PART) != 0 || unnamed_inside || planner->is_part[i]) {
    *refusal = CT_REFUSED_PART;
    return false;
  }
  switch (function->entry) {
  case CT_ENTRY_CALLABLE:
    return true;
  case CT_ENTRY_SIGNAL:
    *refusal = CT_REFUSED_SIGNAL_FRAME;
    return false;
  case CT_ENTRY_NOCFI:
    if (planner->cfi_is_usual) {
      *refusal = CT_REFUSED_NO_CFI;
      return false;
    }
    if ((function->sources & ~CT_SRC_EHFRAME) != 0 && (function->flags & CT_FN_NOTYPE) == 0) {
      return true;
    }
    break;
  default:
    break;
  }
  *refusal = CT_REFUSED_ODD_ENTRY;
  return false;
}

void
ct_plan_one(const struct planner *planner, size_t i)
{
  const struct ct_function *function = &planner->functions[i];
  struct ct_planned *planned = &planner->plan->functions[i];
  uint32_t facts = planner->facts[i];
  enum ct_refusal refusal = CT_REFUSED_NOT;
  planned->address = function->address;
  planned->size = function->size;
  planned->name = function->name;
  if (!callable(planner, i, &refusal)) {
    planned->refusal = refusal;
    return;
  }
  if ((facts & CT_FACT_SIGRETURN) != 0) {
    planned->refusal = CT_REFUSED_SIGNAL_FRAME;
    return;
  }
  if ((facts & CT_FACT_FLAGS_IN) != 0 || ct_targets_has(&planner->scan.flag_results, function->address)) {
    planned->refusal = CT_REFUSED_FLAGS;
    return;
  }
  planned->refusal = ct_faults_are_known(planner, i) ? CT_REFUSED_FAULTS : ct_tactic_choose(planner, i, planned);
  if (planned->refusal != CT_REFUSED_NOT) {
    planned->tactic = CT_TACTIC_NONE;
  }
  planned->why_enter =
      (uint16_t)(facts & (CT_FACT_TOUCHES_RA_SLOT | CT_FACT_RET_IMM | CT_FACT_VFORK | CT_FACT_MOVES_STACK));
  planned->mode = planned->why_enter != 0 ? CT_HOOK_ENTER : CT_HOOK_FULL;
  planned->self_branch = (facts & CT_FACT_SELF_BRANCH) != 0;
  planned->callout = ct_planner_callout(planner, i, facts);
  refusal = ct_runtime_adapt(planner, i, planned);
  if (refusal != CT_REFUSED_NOT) {
    planned->refusal = refusal;
    planned->tactic = CT_TACTIC_NONE;
  }
}

/* Nothing is added for nothing: a module whose runtime reads return addresses may be without code. */
static int
add_foreign_run(struct ct_plan *plan, uint64_t start, uint64_t end)
{
  if (start == end) {
    return 0;
  }
  struct ct_foreign_run *runs = realloc(plan->foreign, (plan->foreign_count + 1) * sizeof(*runs));
  if (runs == NULL) {
    return CT_ENOMEM;
  }
  plan->foreign = runs;
  plan->foreign[plan->foreign_count++] = (struct ct_foreign_run){start, end};
  return 0;
}

/*
 * Where most functions have CFI, those without are hand-written, or a runtime's own code (V8 builds its builtins
 * into the binary: own frames, and return addresses that the runtime reads). Long runs of it are noted: calls that come
 * from there are recorded by their enter only, like those of JIT code.
 */
static int
find_foreign_code(struct planner *planner)
{
  size_t with = 0, symbols = 0;
  if (planner->plan->runtime == CT_RUNTIME_GO) {
    return 0; /* its compiler's functions have none */
  }
  for (size_t i = 0; i < planner->count; i++) {
    const struct ct_function *function = &planner->functions[i];
    symbols += (function->sources & ~CT_SRC_EHFRAME) != 0;
    with += (function->sources & ~CT_SRC_EHFRAME) != 0 && function->entry != CT_ENTRY_NOCFI;
  }
  planner->cfi_is_usual = with > symbols / 2 || planner->plan->runtime == CT_RUNTIME_NO_RETURNS;
  if (!planner->cfi_is_usual) {
    return 0;
  }
  size_t i = 0;
  int code = 0;
  while (i < planner->count && code == 0) {
    size_t begin = i;
    while (i < planner->count && planner->functions[i].entry == CT_ENTRY_NOCFI) {
      i++;
    }
    if (i > begin) {
      uint64_t start = planner->functions[begin].address;
      uint64_t end = planner->functions[i - 1].address + planner->functions[i - 1].size;
      if (end - start >= 1ull << CT_TABLE_SHIFT) {
        code = add_foreign_run(planner->plan, start, end);
      }
    } else {
      i++;
    }
  }
  return code;
}

static void
plan_all(struct planner *planner)
{
  struct ct_plan *plan = planner->plan;
  ct_shares_plan(planner);
  for (size_t i = 0; i < planner->count; i++) {
    struct ct_planned *planned = &plan->functions[i];
    if (ct_tactic_may_help(planned->refusal) && ct_tactic_choose_other(planner, i, planned)) {
      planned->refusal = CT_REFUSED_NOT;
    }
    plan->hooked += planned->refusal == CT_REFUSED_NOT;
    plan->refused[planned->refusal]++;
  }
  plan->refused[CT_REFUSED_NOT] = 0;
}

/* LLVM's and nongnu's steps. Of libgcc's unwinder _Unwind_Find_FDE is hooked. */
static bool
has_own_unwinder(const struct ct_elf *elf)
{
  static const char *const names[] = {"unw_step", "__unw_step", "_ULx86_64_step", "_Ux86_64_step"};
  uint64_t address;
  bool any = false;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    any |= ct_elf_symbol(elf, names[i], &address) == 0;
  }
  return any;
}

/* How much text there is, and how much of it belongs to the functions, which are sorted; one may lie in another. */
static void
measure_text(struct ct_plan *plan)
{
  const struct ct_elf_section *sections;
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_exec_sections(plan->elf, &sections);
  for (size_t i = 0; i < count; i++) {
    plan->code_bytes += sections[i].is_plt ? 0 : sections[i].size;
  }
  size_t segment_count = count == 0 ? ct_elf_segments(plan->elf, &segments) : 0;
  for (size_t i = 0; i < segment_count; i++) {
    plan->code_bytes += (segments[i].flags & PF_X) != 0 ? segments[i].file_bytes : 0;
  }
  uint64_t done = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    uint64_t start = planned->address > done ? planned->address : done, end = planned->address + planned->size;
    if (planned->refusal != CT_REFUSED_PLT && end > start) {
      plan->known_bytes += end - start;
      done = end;
    }
  }
  if (plan->known_bytes > plan->code_bytes) {
    plan->known_bytes = plan->code_bytes;
  }
}

/* From where to where there is text. */
static void
text_extent(const struct ct_elf *elf, uint64_t *start, uint64_t *end)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(elf, &segments);
  *start = UINT64_MAX;
  *end = 0;
  for (size_t i = 0; i < count; i++) {
    if ((segments[i].flags & PF_X) != 0 && segments[i].file_bytes != 0) {
      uint64_t last = segments[i].address + segments[i].file_bytes;
      *start = segments[i].address < *start ? segments[i].address : *start;
      *end = last > *end ? last : *end;
    }
  }
  if (*start > *end) {
    *start = *end = 0;
  }
}

/* Looks at all code: what calls, jumps and points where. */
static int
look_at_code(struct planner *planner, uint64_t start, uint64_t end)
{
  struct ct_plan *plan = planner->plan;
  plan->runtime = ct_runtime_of(planner);
  int code = plan->runtime == CT_RUNTIME_READS_RETURNS ? add_foreign_run(plan, start, end) : find_foreign_code(planner);
  if (code != 0 || (code = ct_shares_scan(planner)) != 0 || (code = ct_scan_reconcile(&planner->scan)) != 0) {
    return code;
  }
  ct_find_copies(planner);
  ct_find_counts(planner);
  follow_tail_jumps(planner);
  code = find_parts(planner);
  add_landing_pads(planner);
  return planner->scan.targets.out_of_memory ? CT_ENOMEM : code;
}

/* Of a library alone: a program's own copy runs before there is anything at %fs. */
static uint64_t
find_errno_slot(const struct ct_elf *elf)
{
  enum { FORM_BYTES = 21 };
  uint64_t address;
  if (ct_elf_soname(elf) == NULL || ct_elf_symbol(elf, "__errno_location", &address) != 0) {
    return 0;
  }
  const uint8_t *code = ct_elf_bytes(elf, address, FORM_BYTES);
  uint64_t slot = code != NULL ? ct_errno_slot(code, FORM_BYTES, address) : 0;
  return slot != 0 && ct_elf_bytes(elf, slot, 8) != NULL ? slot : 0;
}

static int
plan_elf(struct ct_plan *plan, struct ct_diag *diag)
{
  struct planner planner = {.plan = plan};
  int code = ct_elf_functions(plan->elf, &planner.functions, &planner.count, diag);
  if (code != 0) {
    return code;
  }
  uint64_t start, end;
  text_extent(plan->elf, &start, &end);
  plan->count = planner.count;
  plan->functions = calloc(planner.count + 1, sizeof(*plan->functions));
  planner.facts = calloc(planner.count + 1, sizeof(*planner.facts));
  code = ct_scan_init(&planner.scan, start, end);
  planner.is_part = calloc(planner.count + 1, 1);
  planner.named = calloc(planner.count + 1, 1);
  if (plan->functions == NULL || planner.facts == NULL || planner.is_part == NULL || planner.named == NULL) {
    code = CT_ENOMEM;
  }
  if (code != 0 || (code = look_at_code(&planner, start, end)) != 0) {
    goto free_planner;
  }
  plan_all(&planner);
  ct_planner_reconcile_gs(&planner, start, end);
  measure_text(plan);
  plan->no_stores = ct_runtime_forbids_stores(plan->elf);
  plan->own_unwinder = has_own_unwinder(plan->elf);
  plan->translates = ct_runtime_translates(plan->elf);
  if (ct_elf_symbol(plan->elf, "_r_debug", &plan->r_debug) != 0) {
    plan->r_debug = 0;
  }
  plan->errno_slot = find_errno_slot(plan->elf);
free_planner:
  ct_scan_free(&planner.scan);
  free(planner.facts);
  free(planner.is_part);
  free(planner.named);
  return code == 0 ? 0 : ct_fail(diag, code, "cannot plan %s: %s", plan->path, ct_err_text(code));
}

int
ct_plan_create_fd(int fd, const char *path, struct ct_plan **out, struct ct_diag *diag)
{
  uint64_t begin = ct_now_ns();
  struct ct_plan *plan = calloc(1, sizeof(*plan));
  if (plan == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = CT_ENOMEM;
  plan->path = strdup(path);
  if (plan->path != NULL) {
    code = ct_elf_open_fd(fd, path, NULL, &plan->elf, diag);
  }
  if (code == 0) {
    code = plan_elf(plan, diag);
  }
  if (code != 0) {
    ct_plan_free(plan);
    return code;
  }
  ct_elf_drop_pages(plan->elf);
  plan->plan_ns = ct_now_ns() - begin;
  *out = plan;
  return 0;
}

int
ct_plan_create(const char *path, struct ct_plan **out, struct ct_diag *diag)
{
  int fd = ct_elf_open_file(path, diag);
  if (fd < 0) {
    return fd;
  }
  int code = ct_plan_create_fd(fd, path, out, diag);
  close(fd);
  return code;
}

const char *
ct_plan_alias(const struct ct_plan *plan, const struct ct_planned *planned, size_t n)
{
  if (plan->mapping == NULL) {
    struct ct_function function = {.address = planned->address};
    return ct_function_alias(plan->elf, &function, n);
  }
  size_t low = 0, high = plan->alias_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (plan->aliases[middle].address < planned->address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  bool there = n < plan->alias_count - low && plan->aliases[low + n].address == planned->address;
  return there ? plan->aliases[low + n].name : NULL;
}

bool
ct_plan_hides_handlers(const struct ct_plan *plan)
{
  if (plan->runtime == CT_RUNTIME_GO) {
    return false;
  }
  bool hides = ct_elf_interp(plan->elf) != NULL || ct_elf_soname(plan->elf) != NULL;
  for (size_t i = 0; i < plan->count && !hides; i++) {
    hides = plan->functions[i].callout == CT_CALLOUT_SIGACTION && plan->functions[i].refusal == CT_REFUSED_NOT;
  }
  return hides;
}

void
ct_plan_use_int3(struct ct_plan *plan)
{
  for (size_t i = 0; i < plan->count; i++) {
    struct ct_planned *planned = &plan->functions[i];
    if (planned->refusal != CT_REFUSED_NOT && planned->int3_fits) {
      plan->refused[planned->refusal]--;
      plan->hooked++;
      planned->int3_fits = planned->refusal;
      planned->refusal = CT_REFUSED_NOT;
      planned->tactic = CT_TACTIC_INT3;
    }
  }
}

void
ct_plan_free(struct ct_plan *plan)
{
  if (plan == NULL) {
    return;
  }
  ct_elf_close(plan->elf);
  ct_sources_free(plan->sources);
  ct_plan_prototypes_free(plan);
  if (plan->mapping != NULL) {
    munmap(plan->mapping, plan->mapping_bytes);
  } else {
    free(plan->functions);
    free(plan->springboard);
    free(plan->foreign);
  }
  free(plan->path);
  free(plan);
}
