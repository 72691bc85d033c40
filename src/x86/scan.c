/* SPDX-License-Identifier: MIT */
/*
 * The scanner; see scan.h. A linear walk over each function's bytes with ct_decode.
 *
 * A function touches its own return-address slot when, with the CFA known from its CFI row (rsp- or rbp-based), an
 * operand addresses CFA-8, when it pops with CFA = rsp+8, or when a row places the CFA closer than 8 to rsp. gcc's
 * realigning prologue, `push -8(%r10)`, copies the return-address slot for debuggers only and is addressed off r10: not
 * counted. Without CFI the depth of the stack is followed from push, pop, sub, add, lea and leave, and handed over to
 * branch targets inside the function; after a jump with no known depth nothing is concluded until the next known one.
 *
 * How it can err: code that is reached only through a table of addresses is seen (the walk is linear), but jumps
 * there are not known as branch targets. A body with data in it may be decoded wrongly: a fact too many, at worst.
 */
#include "x86/scan.h"

#include "x86/decode.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEPTH_UNKNOWN INT32_MIN
#define DEPTHS_MAX    64 /* branch targets remembered in a function without CFI */
#define RSP           4  /* as a register operand */
#define RBP           5
#define RDI           7
#define ARCH_SET_GS   0x1001 /* asm/prctl.h */
#define PAGE_WORDS    (CT_TARGETS_PAGE / 64)
#define SLAB_BYTES    (16u << 10) /* the first one of a set; each has twice the size of the one before, ... */
#define SLAB_MAX      (1u << 20)  /* ... up to this */

/* Zeroed pages, one after the other, after this head. */
struct ct_targets_slab {
  struct ct_targets_slab *next;
  size_t size_bytes, used_bytes;
};
static_assert(sizeof(struct ct_targets_slab) <= PAGE_WORDS * sizeof(uint64_t), "the head takes a page's place");

static size_t
page_count(const struct ct_targets *targets)
{
  return (size_t)((targets->end - targets->start) / CT_TARGETS_PAGE + 1);
}

static int
targets_init(struct ct_targets *targets, uint64_t start, uint64_t end)
{
  targets->start = start;
  targets->end = end;
  targets->pages = calloc(page_count(targets), sizeof(*targets->pages));
  targets->first = page_count(targets);
  return targets->pages == NULL ? CT_ENOMEM : 0;
}

static void
targets_free(struct ct_targets *targets)
{
  while (targets->slabs != NULL) {
    struct ct_targets_slab *slab = targets->slabs;
    targets->slabs = slab->next;
    munmap(slab, slab->size_bytes);
  }
  free(targets->pages);
}

static struct ct_targets_slab *
new_slab(struct ct_targets *targets)
{
  size_t size = targets->slabs == NULL ? SLAB_BYTES : targets->slabs->size_bytes * 2;
  size = size < SLAB_MAX ? size : SLAB_MAX;
  struct ct_targets_slab *slab =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (slab == MAP_FAILED) {
    return NULL;
  }
  *slab = (struct ct_targets_slab){targets->slabs, size, PAGE_WORDS * sizeof(uint64_t)};
  targets->slabs = slab;
  return slab;
}

static __attribute__((noinline)) uint64_t *
new_page(struct ct_targets *targets, size_t page)
{
  struct ct_targets_slab *slab = targets->slabs;
  if (slab == NULL || slab->used_bytes == slab->size_bytes) {
    slab = new_slab(targets);
  }
  if (slab == NULL) {
    targets->out_of_memory = true;
    return NULL;
  }
  targets->pages[page] = (uint64_t *)((char *)slab + slab->used_bytes);
  slab->used_bytes += PAGE_WORDS * sizeof(uint64_t);
  targets->first = page < targets->first ? page : targets->first;
  targets->last = page < targets->last ? targets->last : page + 1;
  return targets->pages[page];
}

/* The page's words, made when they are not there; NULL without memory. */
static inline uint64_t *
page_at(struct ct_targets *targets, size_t page)
{
  return targets->pages[page] != NULL ? targets->pages[page] : new_page(targets, page);
}

static inline void
add_target(struct ct_targets *targets, uint64_t address)
{
  if (address >= targets->start && address < targets->end) {
    uint64_t bit = address - targets->start;
    uint64_t *words = page_at(targets, bit / CT_TARGETS_PAGE);
    if (words != NULL) {
      words[bit % CT_TARGETS_PAGE / 64] |= 1ull << (bit % 64);
    }
  }
}

void
ct_targets_add(struct ct_targets *targets, uint64_t address)
{
  add_target(targets, address);
}

bool
ct_targets_has(const struct ct_targets *targets, uint64_t address)
{
  if (address < targets->start || address >= targets->end) {
    return false;
  }
  uint64_t bit = address - targets->start;
  const uint64_t *words = targets->pages[bit / CT_TARGETS_PAGE];
  return words != NULL && (words[bit % CT_TARGETS_PAGE / 64] >> (bit % 64) & 1) != 0;
}

bool
ct_targets_has_any(const struct ct_targets *targets, uint64_t start, uint64_t end)
{
  start = start > targets->start ? start : targets->start;
  end = end < targets->end ? end : targets->end;
  for (uint64_t bit = start - targets->start; start < end && bit < end - targets->start;) {
    uint64_t past = end - targets->start - bit; /* bits that are left */
    const uint64_t *words = targets->pages[bit / CT_TARGETS_PAGE];
    uint64_t step = words != NULL ? 64 - bit % 64 : CT_TARGETS_PAGE - bit % CT_TARGETS_PAGE;
    uint64_t mask = (past < 64 ? (1ull << past) - 1 : UINT64_MAX);
    if (words != NULL && (words[bit % CT_TARGETS_PAGE / 64] >> (bit % 64) & mask) != 0) {
      return true;
    }
    bit += step;
  }
  return false;
}

static void
targets_merge(struct ct_targets *targets, const struct ct_targets *part)
{
  for (size_t i = part->first; i < part->last; i++) {
    uint64_t *words = part->pages[i] != NULL ? page_at(targets, i) : NULL;
    for (size_t w = 0; words != NULL && w < PAGE_WORDS; w++) {
      words[w] |= part->pages[i][w];
    }
  }
  targets->out_of_memory |= part->out_of_memory;
}

int
ct_scan_init(struct ct_scan *scan, uint64_t start, uint64_t end)
{
  memset(scan, 0, sizeof(*scan));
  if (end < start || end - start > (1ull << 36)) {
    return CT_EFORMAT;
  }
  int code = targets_init(&scan->targets, start, end);
  if (code == 0) {
    code = targets_init(&scan->called, start, end);
  }
  return code != 0 ? code : targets_init(&scan->flag_results, start, end);
}

void
ct_scan_free(struct ct_scan *scan)
{
  targets_free(&scan->targets);
  targets_free(&scan->called);
  targets_free(&scan->flag_results);
  free(scan->tail_jumps);
  free(scan->flag_uses);
  memset(scan, 0, sizeof(*scan));
}

static bool
out_of_memory(const struct ct_scan *scan)
{
  return scan->targets.out_of_memory || scan->called.out_of_memory || scan->flag_results.out_of_memory;
}

static int
add_flag_use(struct ct_scan *scan, struct ct_flag_use use)
{
  if (scan->flag_use_count == scan->flag_use_capacity) {
    size_t grown = scan->flag_use_capacity == 0 ? 64 : scan->flag_use_capacity * 2;
    struct ct_flag_use *uses = realloc(scan->flag_uses, grown * sizeof(*uses));
    if (uses == NULL) {
      return CT_ENOMEM;
    }
    scan->flag_uses = uses;
    scan->flag_use_capacity = grown;
  }
  scan->flag_uses[scan->flag_use_count++] = use;
  return 0;
}

int
ct_scan_reconcile(struct ct_scan *scan)
{
  for (size_t i = 0; i < scan->flag_use_count; i++) {
    const struct ct_flag_use *use = &scan->flag_uses[i];
    bool branched = false;
    for (uint64_t at = use->after; at <= use->reader && !branched; at++) {
      branched = ct_targets_has(&scan->targets, at);
    }
    if (!branched) {
      ct_targets_add(&scan->flag_results, use->callee);
    }
  }
  return out_of_memory(scan) ? CT_ENOMEM : 0;
}

static int
add_tail_jump(struct ct_scan *scan, struct ct_tail_jump jump)
{
  if (scan->tail_jump_count == scan->tail_jump_capacity) {
    size_t grown = scan->tail_jump_capacity == 0 ? 1024 : scan->tail_jump_capacity * 2;
    struct ct_tail_jump *jumps = realloc(scan->tail_jumps, grown * sizeof(*jumps));
    if (jumps == NULL) {
      return CT_ENOMEM;
    }
    scan->tail_jumps = jumps;
    scan->tail_jump_capacity = grown;
  }
  scan->tail_jumps[scan->tail_jump_count++] = jump;
  return 0;
}

int
ct_scan_merge(struct ct_scan *scan, const struct ct_scan *part)
{
  targets_merge(&scan->targets, &part->targets);
  targets_merge(&scan->called, &part->called);
  int code = out_of_memory(scan) ? CT_ENOMEM : 0;
  for (size_t i = 0; i < part->tail_jump_count && code == 0; i++) {
    code = add_tail_jump(scan, part->tail_jumps[i]);
  }
  for (size_t i = 0; i < part->flag_use_count && code == 0; i++) {
    code = add_flag_use(scan, part->flag_uses[i]);
  }
  return code;
}

struct known_depth {
  uint64_t address;
  int32_t depth;
};

struct walk {
  struct ct_scan *scan;
  uint32_t function;
  uint64_t start, end;
  const struct ct_cfi_row *rows;
  size_t row_count, row;
  uint64_t row_end;             /* where what is known of the CFA changes: the next row, or the next byte without CFI */
  unsigned cfa_reg;             /* DWARF number; CFA_UNKNOWN: not known here */
  uint32_t base_bits, sib_bits; /* ModRM and SIB of an operand that may be based on it */
  int32_t cfa_offset;           /* CFA = cfa_reg + cfa_offset */
  int32_t depth;                /* without CFI: CFA - rsp */
  struct known_depth known[DEPTHS_MAX];
  size_t known_count;
  uint64_t known_map; /* bit address % 64 of each */
  int facts;
  bool may_take_flags;   /* on the entry's straight line, and nothing has set flags */
  uint64_t flags_callee; /* target of the call we stand after while no instruction has set flags, 0 none */
  uint64_t flags_after;  /* and the instruction after it */
  uint32_t eax;          /* last constant moved to eax */
  bool eax_known;
  uint32_t edi;        /* likewise, 0: none */
  int caller_reg;      /* where the caller's frame pointer was loaded to, or -1 */
  uint64_t line_start; /* the entry, or after the last jump or return */
  struct gs_use {
    uint64_t line_start, address;
  } gs_uses[16]; /* not on the entry's line */
  size_t gs_use_count;
};

enum { CFA_UNKNOWN = 0x100 }; /* no base that an instruction can have */

/* ModRM | SIB << 8: rm 4 and a SIB without index, with base 4 (rsp) or 5 (rbp); rm 5. */
#define SIB_MASK 0x3f07u
#define SIB_RSP  0x2404u
#define SIB_RBP  0x2504u
#define RM_MASK  0x07u
#define RM_RBP   0x05u
#define NEVER    0x10000u

/* What an operand looks like that may be based on cfa_reg: most instructions have none, and it is soon seen. */
static void
choose_bases(struct walk *walk)
{
  walk->base_bits = walk->cfa_reg == CT_BASE_RBP ? RM_RBP : NEVER;
  walk->sib_bits = walk->cfa_reg == CT_BASE_RBP ? SIB_RBP : walk->cfa_reg == CT_BASE_RSP ? SIB_RSP : NEVER;
}

/* What is known of the CFA from address on, up to row_end. */
static void
find_cfa(struct walk *walk, uint64_t address)
{
  walk->cfa_reg = CFA_UNKNOWN;
  if (walk->row_count != 0) {
    while (walk->row + 1 < walk->row_count && walk->rows[walk->row + 1].pc <= address) {
      walk->row++;
    }
    const struct ct_cfi_row *row = &walk->rows[walk->row];
    bool last = walk->row + 1 == walk->row_count;
    walk->row_end = row->pc > address ? row->pc : last ? UINT64_MAX : walk->rows[walk->row + 1].pc;
    if (row->pc <= address && (row->cfa_reg == CT_BASE_RSP || row->cfa_reg == CT_BASE_RBP)) {
      walk->cfa_reg = row->cfa_reg;
      walk->cfa_offset = row->cfa_offset;
    }
  } else {
    walk->row_end = address + 1;
    for (size_t i = 0; (walk->known_map >> (address % 64) & 1) != 0 && i < walk->known_count; i++) {
      if (walk->known[i].address == address) {
        walk->depth = walk->known[i].depth;
      }
    }
    if (walk->depth != DEPTH_UNKNOWN) {
      walk->cfa_reg = CT_BASE_RSP;
      walk->cfa_offset = walk->depth;
    }
  }
  if (walk->cfa_reg == CT_BASE_RSP && walk->cfa_offset < 8) {
    walk->facts |= CT_FACT_TOUCHES_RA_SLOT;
  }
  choose_bases(walk);
}

/* mov disp(%rbp), %reg; with rbp itself it goes back to the caller (the unwinder's). */
static bool
loads_other_than_rbp(const struct ct_insn *in)
{
  return (in->code[0] & 0xf8) == 0x48 && in->code[1] == 0x8b && ct_insn_reg(in) != RBP;
}

static inline void
check_ra_slot(struct walk *walk, const struct ct_insn *in)
{
  uint32_t address = in->address;
  if ((address & RM_MASK) != walk->base_bits && (address & SIB_MASK) != walk->sib_bits) {
    return;
  }
  if ((in->kind & CT_INSN_MEMORY) == 0 || ct_insn_base(in) != walk->cfa_reg || ct_insn_op(in) == CT_OP_NOP) {
    return;
  }
  int64_t place = (int64_t)ct_insn_disp(in) - walk->cfa_offset; /* from the CFA */
  if (place == -8) {
    walk->facts |= CT_FACT_TOUCHES_RA_SLOT;
  } else if (place == -16 && walk->cfa_reg == CT_BASE_RBP && walk->cfa_offset == 16 && loads_other_than_rbp(in)) {
    walk->caller_reg = ct_insn_reg(in);
  } else if (place < -8 && walk->cfa_offset == 8 && ct_insn_op(in) != CT_OP_LEA) {
    walk->facts |= CT_FACT_RED_ZONE;
  }
}

/* Adds, without the undefined overflow that made-up code could bring about. */
static void
change_depth(struct walk *walk, int64_t by)
{
  walk->depth = (int32_t)((uint32_t)walk->depth + (uint32_t)by);
}

/* Without CFI: what the instruction does to the depth. */
static void
follow_depth(struct walk *walk, const struct ct_insn *in)
{
  if (walk->depth == DEPTH_UNKNOWN) {
    return;
  }
  switch (ct_insn_op(in)) {
  case CT_OP_PUSH:
    change_depth(walk, 8);
    break;
  case CT_OP_POP:
  case CT_OP_POP_FLAGS:
    change_depth(walk, -8);
    break;
  case CT_OP_ADD_IMM:
    change_depth(walk, ct_insn_rm(in) == RSP ? -(int64_t)ct_insn_value(in) : 0);
    break;
  case CT_OP_SUB_IMM:
    change_depth(walk, ct_insn_rm(in) == RSP ? ct_insn_value(in) : 0);
    break;
  case CT_OP_LEA:
    if (ct_insn_reg(in) == RSP && ct_insn_base(in) == CT_BASE_RSP) {
      change_depth(walk, -(int64_t)ct_insn_disp(in));
    } else if (ct_insn_reg(in) == RSP) {
      walk->depth = DEPTH_UNKNOWN;
    }
    break;
  case CT_OP_LEAVE:
    walk->depth = 8;
    break;
  case CT_OP_MOV_IMM:
  case CT_OP_WRITE_RM:
    walk->depth = ct_insn_rm(in) == RSP ? DEPTH_UNKNOWN : walk->depth;
    break;
  default:
    break;
  }
}

static void
note_depth(struct walk *walk, uint64_t target)
{
  if (walk->row_count == 0 && walk->depth != DEPTH_UNKNOWN && walk->known_count < DEPTHS_MAX && target > walk->start &&
      target < walk->end) {
    walk->known[walk->known_count++] = (struct known_depth){target, walk->depth};
    walk->known_map |= 1ull << (target % 64);
  }
}

/* While it matters who reads flags: from the entry on, and after a call, until some instruction sets them. */
static int
follow_flags(struct walk *walk, const struct ct_insn *in, uint64_t address)
{
  int code = 0;
  unsigned traits = ct_insn_traits(in);
  if ((traits & CT_TRAIT_READS_FLAGS) != 0) {
    walk->facts |= walk->may_take_flags ? CT_FACT_FLAGS_IN : 0;
    if (walk->flags_callee != 0) {
      code = add_flag_use(walk->scan, (struct ct_flag_use){walk->flags_callee, walk->flags_after, address});
    }
  }
  if ((traits & CT_TRAIT_SETS_FLAGS) != 0 || ct_insn_op(in) >= CT_OP_SYSCALL) {
    walk->may_take_flags = false;
    walk->flags_callee = 0;
  }
  return code;
}

static void
follow_syscall(struct walk *walk, uint64_t address)
{
  if (!walk->eax_known) {
    return;
  }
  switch (walk->eax) {
  case 56:  /* clone */
  case 57:  /* fork */
  case 435: /* clone3 */
    walk->facts |= CT_FACT_CLONE;
    break;
  case 58:
    walk->facts |= CT_FACT_VFORK;
    break;
  case 59:
  case 322:
    walk->facts |= CT_FACT_EXEC;
    break;
  case 1:
  case 20:
    walk->facts |= CT_FACT_WRITE;
    break;
  case 13:
    walk->facts |= CT_FACT_SIGACTION;
    break;
  case 158: /* arch_prctl */
    walk->facts |= walk->edi == ARCH_SET_GS ? CT_FACT_GS_SET : 0;
    break;
  case 15:
    if (address - walk->start <= 9) {
      walk->facts |= CT_FACT_SIGRETURN;
    }
    break;
  default:
    break;
  }
  walk->eax_known = false;
}

/* A jump, call or branch to a fixed target. 0 or CT_ENOMEM. */
static int
follow_relative(struct walk *walk, const struct ct_insn *in, uint64_t address)
{
  uint64_t target = address + in->length + (uint64_t)(int64_t)ct_insn_value(in);
  add_target(&walk->scan->targets, target);
  note_depth(walk, target);
  if (ct_insn_op(in) == CT_OP_CALL) {
    add_target(&walk->scan->called, target);
    walk->flags_callee = target;
    walk->flags_after = address + in->length;
  } else if (target == walk->start || target == walk->start + 4) { /* or after its endbr64 */
    walk->facts |= CT_FACT_SELF_BRANCH;
  } else if (target < walk->start || target >= walk->end) {
    return add_tail_jump(walk->scan, (struct ct_tail_jump){walk->function, target, ct_insn_op(in) == CT_OP_BRANCH});
  }
  return 0;
}

/* What follows a jump or a return is reached by a branch, if it is code at all. */
static void
end_line(struct walk *walk, const struct ct_insn *in, uint64_t address)
{
  walk->depth = DEPTH_UNKNOWN;
  walk->line_start = address + in->length;
}

/*
 * Text may have data in it, and the letter e is the gs prefix: a use of gs counts where the code is reached from the
 * entry, straight on or by a direct branch.
 */
__attribute__((cold)) static void
note_gs(struct walk *walk, const struct ct_insn *in, uint64_t address)
{
  if (in->code[in->length - 2] == 0xae) { /* wrgsbase */
    walk->facts |= CT_FACT_GS_SET;
    return;
  }
  if (walk->line_start == walk->start) {
    walk->facts |= CT_FACT_GS;
  } else if (walk->gs_use_count < sizeof(walk->gs_uses) / sizeof(walk->gs_uses[0])) {
    walk->gs_uses[walk->gs_use_count++] = (struct gs_use){walk->line_start, address};
  }
}

/* The uses after a jump or a return: is there a branch to the line of code that they are in? */
__attribute__((cold)) static void
reconcile_gs(struct walk *walk, const uint8_t *code, size_t size, size_t readable)
{
  for (size_t at = 0; at < size;) {
    struct ct_insn in;
    if (!ct_decode(code + at, size - at, readable - at, &in)) {
      at++;
      continue;
    }
    at += in.length;
    if (ct_insn_op(&in) != CT_OP_JUMP && ct_insn_op(&in) != CT_OP_BRANCH) {
      continue;
    }
    uint64_t target = walk->start + at + (uint64_t)(int64_t)ct_insn_value(&in);
    for (size_t i = 0; i < walk->gs_use_count; i++) {
      if (target >= walk->gs_uses[i].line_start && target <= walk->gs_uses[i].address) {
        walk->facts |= CT_FACT_GS;
      }
    }
  }
}

/* Those that follow_op has something to do for. */
#define FOLLOWED                                                                                                       \
  (1u << CT_OP_POP | 1u << CT_OP_MOV_IMM | 1u << CT_OP_LEA | 1u << CT_OP_SYSCALL | 1u << CT_OP_BRANCH |                \
   1u << CT_OP_JUMP | 1u << CT_OP_CALL | 1u << CT_OP_JUMP_INDIRECT | 1u << CT_OP_RET | 1u << CT_OP_RET_IMM)

/* What the ops with an effect beyond the stack do. 0 or CT_ENOMEM. */
static int
follow_op(struct walk *walk, const struct ct_insn *in, uint64_t address)
{
  int code = 0;
  switch (ct_insn_op(in)) {
  case CT_OP_POP:
    if (walk->cfa_reg == CT_BASE_RSP && walk->cfa_offset == 8) {
      walk->facts |= CT_FACT_TOUCHES_RA_SLOT;
    }
    break;
  case CT_OP_MOV_IMM:
    if (ct_insn_rm(in) == 0) {
      walk->eax = (uint32_t)ct_insn_value(in);
      walk->eax_known = true;
    } else if (ct_insn_rm(in) == RDI) {
      walk->edi = (uint32_t)ct_insn_value(in);
    }
    break;
  case CT_OP_LEA:
    if (ct_insn_base(in) == CT_BASE_RIP) {
      uint64_t target = address + in->length + (uint64_t)(int64_t)ct_insn_disp(in);
      add_target(&walk->scan->targets, target);
      add_target(&walk->scan->called, target);
    }
    break;
  case CT_OP_SYSCALL:
    follow_syscall(walk, address);
    break;
  case CT_OP_JUMP:
    code = follow_relative(walk, in, address);
    end_line(walk, in, address);
    break;
  case CT_OP_CALL:
  case CT_OP_BRANCH:
    code = follow_relative(walk, in, address);
    break;
  case CT_OP_RET_IMM:
    walk->facts |= CT_FACT_RET_IMM;
    end_line(walk, in, address);
    break;
  case CT_OP_JUMP_INDIRECT:
  case CT_OP_RET:
    end_line(walk, in, address);
    break;
  default:
    break;
  }
  return code;
}

/*
 * add %reg, %rsp. What makes room for locals of any size subtracts, and goes back by mov or lea; what adds a distance
 * that was worked out goes to another place on the stack (greenlet).
 */
static bool
adds_to_rsp(const struct ct_insn *in)
{
  const uint8_t *code = in->code;
  if ((in->kind & CT_INSN_MEMORY) != 0 || in->length != 3 || (code[0] & 0xf8) != 0x48) {
    return false;
  }
  return (code[1] == 0x01 && ct_insn_rm(in) == RSP) || (code[1] == 0x03 && ct_insn_reg(in) == RSP);
}

/*
 * mov %rbp, %reg where rbp is the frame pointer: __builtin_frame_address(0). With 8 added it is the address of the
 * slot. What goes back to the frame is mov %rbp, %rsp.
 */
static bool
takes_frame(const struct walk *walk, const struct ct_insn *in)
{
  const uint8_t *code = in->code;
  return walk->cfa_reg == CT_BASE_RBP && walk->cfa_offset == 16 && in->length == 3 && (code[0] & 0xfe) == 0x48 &&
         code[1] == 0x89 && (code[2] & 0xf8) == 0xe8 && (code[0] != 0x48 || ct_insn_rm(in) != RSP);
}

/* mov (%reg), %reg with the same register: from a saved rbp to the next one. */
static bool
is_step(const struct ct_insn *in)
{
  const uint8_t *code = in->code;
  return in->length == 3 && (code[0] == 0x48 || code[0] == 0x4d) && code[1] == 0x8b && code[2] >> 3 == (code[2] & 7) &&
         (code[2] & 7) != 4 && (code[2] & 7) != 5;
}

/* mov 8(%reg), %other: the slot of the frame that reg points to. */
static bool
reads_slot_by(const struct ct_insn *in, int reg)
{
  const uint8_t *code = in->code;
  return in->length == 4 && (code[0] & 0xf8) == 0x48 && code[1] == 0x8b && (code[2] & 0xc7) == (0x40 | (reg & 7)) &&
         (code[0] & 1) == reg >> 3 && code[3] == 8;
}

int
ct_scan_function(struct ct_scan *scan, uint32_t function, const uint8_t *code, uint64_t address, size_t size,
                 size_t readable, const struct ct_cfi_row *rows, size_t row_count)
{
  struct walk walk = {.scan = scan,
                      .function = function,
                      .start = address,
                      .end = address + size,
                      .rows = rows,
                      .row_count = row_count,
                      .depth = 8,
                      .may_take_flags = true,
                      .caller_reg = -1,
                      .line_start = address};
  size_t at = 0;
  bool has_frame = false, goes_on = false;
  int frame_reg = -1; /* where the instruction before has put the frame's address */
  while (at < size) {
    struct ct_insn in;
    uint64_t here = address + at;
    if (!ct_decode(code + at, size - at, readable - at, &in)) {
      walk.facts |= CT_FACT_UNDECODED;
      walk.may_take_flags = false;
      at++;
      continue;
    }
    if (here >= walk.row_end) {
      find_cfa(&walk, here);
    }
    check_ra_slot(&walk, &in);
    if (walk.caller_reg >= 0 && reads_slot_by(&in, walk.caller_reg)) {
      walk.facts |= CT_FACT_READS_FRAMES;
    }
    if (row_count == 0) {
      follow_depth(&walk, &in);
    }
    if ((walk.may_take_flags || walk.flags_callee != 0) && follow_flags(&walk, &in, here) != 0) {
      return CT_ENOMEM;
    }
    if ((ct_insn_traits(&in) & CT_TRAIT_GS) != 0) {
      note_gs(&walk, &in, here);
    }
    if (ct_insn_op(&in) == CT_OP_WRITE_RM) {
      walk.facts |= adds_to_rsp(&in) ? CT_FACT_MOVES_STACK : 0;
    }
    if (frame_reg >= 0 && ct_insn_op(&in) == CT_OP_ADD_IMM && ct_insn_rm(&in) == frame_reg && ct_insn_value(&in) == 8) {
      walk.facts |= CT_FACT_TOUCHES_RA_SLOT;
    }
    frame_reg = ct_insn_op(&in) == CT_OP_WRITE_RM && takes_frame(&walk, &in) ? ct_insn_rm(&in) : -1;
    has_frame |= frame_reg >= 0;
    goes_on |= has_frame && is_step(&in);
    if ((FOLLOWED >> ct_insn_op(&in) & 1) != 0) {
      int failed = follow_op(&walk, &in, here);
      if (failed != 0) {
        return failed;
      }
    }
    at += in.length;
  }
  if (walk.gs_use_count != 0) {
    reconcile_gs(&walk, code, size, readable);
  }
  walk.facts |= goes_on ? CT_FACT_TOUCHES_RA_SLOT | CT_FACT_READS_FRAMES : 0;
  return out_of_memory(scan) ? CT_ENOMEM : walk.facts;
}
