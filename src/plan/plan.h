/* SPDX-License-Identifier: MIT */
/* The inside of a plan; <contrail/plan.h> says what one is. */
#ifndef CT_PLAN_H
#define CT_PLAN_H

#include <contrail/plan.h>

#include "base/error.h"
#include "ring/layout.h"
#include "x86/relocate.h"

struct ct_elf;
struct ct_sources; /* target/source.h */
struct ct_plan_prototypes;

/* Above a program at a fixed address this much is left free for its heap. */
#define CT_HEAP_RESERVE (768ull << 20)

/* Whose code a module has, see plan/runtimes.c. */
enum ct_runtime {
  CT_RUNTIME_PLAIN = 0,
  CT_RUNTIME_READS_RETURNS,   /* return addresses in its frames must be its own: enter only */
  CT_RUNTIME_GO,              /* likewise, on stacks of its own */
  CT_RUNTIME_HIDDEN_UNWINDER, /* nobody may meet a trampoline's address: enter only */
  CT_RUNTIME_NO_RETURNS,      /* what has no CFI has no return addresses on the stack */
  CT_RUNTIME_COUNT
};

struct ct_planned {
  uint64_t address; /* ELF virtual address */
  uint64_t size;
  const char *name;     /* raw; NULL when nothing is known */
  uint8_t tactic;       /* enum ct_tactic */
  uint8_t refusal;      /* enum ct_refusal */
  uint8_t mode;         /* CT_HOOK_* */
  uint8_t callout;      /* enum ct_callout */
  uint8_t self_branch;  /* it branches to its own entry */
  uint8_t event_last;   /* CT_HOOK_STACKLESS: the call counts once the displaced instructions have been gone through */
  uint8_t patch_offset; /* of the jump from address: 0, or 4 after endbr64 */
  uint8_t patch_bytes;  /* bytes at patch_offset that change: 5, 2, or 1 to 4 with CT_TACTIC_PUN */
  uint8_t int3_fits;    /* refused, but one byte at patch_offset could be changed, window is for that; once used: the
                           refusal */
  uint8_t refusal_offset; /* where a branch goes into, for the report */
  uint16_t why_enter;     /* facts (enum ct_scan_fact) for which the hook is enter-only */
  uint32_t springboard;   /* CT_TACTIC_SHORT, CT_TACTIC_EVICT: index in ct_plan.springboard */
  struct ct_window window;
};

/* Where a short jump goes on: five bytes of padding, or of instructions that move out. ELF virtual addresses. */
struct ct_springboard {
  uint64_t relay;          /* of the five-byte jump to the trampoline */
  uint64_t evicted;        /* of the instructions that move out; relay is evicted + 5 (CT_TACTIC_EVICT) */
  struct ct_window window; /* these instructions */
};

/* A long run of code without call frame information, e.g. a runtime's own code built into its binary. */
struct ct_foreign_run {
  uint64_t start, end; /* ELF virtual addresses */
};

struct ct_plan_alias {
  uint64_t address; /* of the function */
  const char *name;
};

struct ct_plan {
  struct ct_elf *elf; /* of a plan from the cache: the layout only */
  char *path;
  struct ct_planned *functions; /* sorted by address */
  size_t count;
  struct ct_springboard *springboard;
  size_t springboard_count;
  size_t hooked;
  size_t refused[CT_REFUSED_COUNT];
  struct ct_foreign_run *foreign;
  size_t foreign_count;
  /* From here on up to plan_ns: stored in the cache as they stand (plan_file.c). */
  int uses_gs;          /* some function uses gs */
  int gs_unsafe;        /* and no hook is there that would report it in time */
  int no_stores;        /* the program counts on nothing lying where return stores would (ThreadSanitizer) */
  int translates;       /* the program runs other programs' code, and some of its own, by translating it (valgrind) */
  int runtime;          /* enum ct_runtime */
  int own_unwinder;     /* it has an unwinder that finds call frame information by dl_iterate_phdr alone */
  uint64_t code_bytes;  /* text, without procedure linkage tables ... */
  uint64_t known_bytes; /* ... and how much of it belongs to functions that are known */
  uint64_t r_debug;     /* address of the loader's struct r_debug (link.h), 0 in a file that is no such loader */
  uint64_t errno_slot;  /* in a C library: the word that says where errno is from %fs on; 0: none, or not known */
  uint64_t plan_ns;
  /* Of a plan from the cache: what all of the above points into, and the aliases. */
  void *mapping;
  size_t mapping_bytes;
  struct ct_plan_alias *aliases; /* sorted by address */
  size_t alias_count;
  struct ct_sources *sources; /* of ct_plan_sources */
  bool sources_read;
  struct ct_plan_prototypes *prototypes; /* plan/prototypes.c; NULL: nobody has asked */
};

/* What a recording wants of a plan's hooks. */
enum ct_requested_mode {
  CT_REQUESTED_HOOK = 0,
  CT_REQUESTED_NONE,        /* no hook, no patch */
  CT_REQUESTED_PASSTHROUGH, /* no event, but a trampoline: CT_HOOK_PASSTHROUGH */
  CT_REQUESTED_LIGHT,       /* CT_HOOK_SAMPLED where that can be */
  CT_REQUESTED_VALUES,      /* as CT_REQUESTED_HOOK, and where that is a full hook arguments and result too */
  CT_REQUESTED_DETAIL,      /* likewise, with records in the detail lane */
};

/* Functions of a module that a rule is about: with more of them, a budget sees them as it does others. */
#define CT_RULED_MOST 100u

/* All zero: every hook of the plan. */
struct ct_filter_result {
  uint8_t *requested_modes; /* enum ct_requested_mode for each function of the plan; of no meaning for those without a
                               hook. NULL: all 0 */
  uint64_t *more;           /* for each that has CT_REQUESTED_DETAIL: which arguments point to text, or to strings, as
                               ct_trampoline_spec has it, and shifted by 16 its outs; CT_REQUESTED_VALUES: its struct
                               ct_values_form. NULL: all 0 */
  uint8_t *reasons;         /* enum ct_refusal for what is not wanted; NULL: CT_REFUSED_EXCLUDED */
  uint8_t *itrace;    /* for each: the probe that its calls are recorded as instructions for, plus 1; NULL: all 0 */
  uint8_t *ruled;     /* for each: 1: under a budget it is recorded from its first call on, for a rule; NULL: all 0 */
  size_t excluded;    /* hooks that are not wanted ... */
  size_t passthrough; /* ... and those of them that keep a trampoline ... */
  size_t unselected;  /* ... and those for which the reason is CT_REFUSED_UNSELECTED */
  size_t light;       /* CT_REQUESTED_LIGHT */
};

static inline enum ct_requested_mode
ct_filter_result_mode(const struct ct_filter_result *filter_result, size_t function)
{
  return filter_result->requested_modes != NULL ? (enum ct_requested_mode)filter_result->requested_modes[function]
                                                : CT_REQUESTED_HOOK;
}

/* Its calls are recorded. */
static inline bool
ct_requested_has_event(enum ct_requested_mode requested)
{
  return requested == CT_REQUESTED_HOOK || requested == CT_REQUESTED_LIGHT || requested == CT_REQUESTED_VALUES ||
         requested == CT_REQUESTED_DETAIL;
}

/* Why a function that is not wanted is not; of no meaning for the others. */
static inline enum ct_refusal
ct_filter_result_reason(const struct ct_filter_result *filter_result, size_t function)
{
  return filter_result->reasons != NULL ? (enum ct_refusal)filter_result->reasons[function] : CT_REFUSED_EXCLUDED;
}

void ct_filter_result_free(struct ct_filter_result *filter_result);

/* ct_plan_create of an open file, which stays open. */
int ct_plan_create_fd(int fd, const char *path, struct ct_plan **out, struct ct_diag *diag);

/* Further names of a planned function, counted from 0; NULL ends. */
const char *ct_plan_alias(const struct ct_plan *plan, const struct ct_planned *planned, size_t n);

/*
 * Source files and lines of the plan's functions, in their order; NULL when there is no debug information. Read at the
 * first call, and kept: seconds for a large program.
 */
const struct ct_sources *ct_plan_sources(const struct ct_plan *plan);

/*
 * Reads what functions take and give, from debug information: of those for which wanted is not 0. 0, or CT_ENOMEM.
 * Seconds for a large program.
 */
int ct_plan_prototypes_read(const struct ct_plan *plan, const uint8_t *wanted);
/* The fields after the id in a line of prototypes.tsv; numbers of constants are the plan's own. NULL: not known. */
const char *ct_plan_prototype(const struct ct_plan *plan, size_t function);
/* The fields of these constants, with the tab before them. */
const char *ct_plan_constants(const struct ct_plan *plan, uint32_t number);
void ct_plan_prototypes_free(struct ct_plan *plan);

/* What becomes of a hook that is not wanted: no patch, or a trampoline without an event where one is needed. */
enum ct_requested_mode ct_requested_for_none(const struct ct_planned *planned);
/* True for what the user's patterns refuse. */
bool ct_refusal_by_user(enum ct_refusal refusal);
/* The probe (struct ct_hook_desc.itrace) that its hook can see to; 0: none, or its hook has something else to do. */
uint8_t ct_planned_probe(const struct ct_plan *plan, const struct ct_filter_result *filter_result, size_t i);
/* The hook that a planned function gets (enum ct_requested_mode: not CT_REQUESTED_NONE): CT_HOOK_*. */
uint8_t ct_planned_mode(const struct ct_planned *planned, enum ct_requested_mode requested);
/* What that records of arguments and result: CT_HOOK_VALUES_*. */
uint8_t ct_planned_values(const struct ct_planned *planned, enum ct_requested_mode requested);
/*
 * Another number for each sort of trampoline that function i may have; 0: none. The lower bits are its mode + 1. Of
 * those that record values by its type there are two: a rule about its result has rax recorded, whatever the type says.
 */
#define CT_SORT_MODE_MASK   0x1f
#define CT_SORT_PROBE_SHIFT 8
uint16_t ct_planned_sort(const struct ct_plan *plan, const struct ct_filter_result *filter_result, size_t i);

/*
 * True when what a program with this plan reads about signal handlers goes through a hook: in a library, or in itself;
 * and not where its runtime asks the kernel by an instruction of its own (Go).
 */
bool ct_plan_hides_handlers(const struct ct_plan *plan);

/* Why a module's functions are hooked for enter only, or NULL. */
const char *ct_runtime_text(enum ct_runtime runtime);

#endif
