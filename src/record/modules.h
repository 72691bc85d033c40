/* SPDX-License-Identifier: MIT */
/* The modules of a recording: found in the mappings of the target, planned once per file, installed where they lie. */
#ifndef CT_RECORD_MODULES_H
#define CT_RECORD_MODULES_H

#include "drain/drain.h"
#include "drain/rules.h"
#include "select/select.h"
#include "record/injected.h"
#include "record/plans.h"
#include "trace/writer.h"

#include <jansson.h>
#include <stdatomic.h>

/* Hooks of a module that came later than the first ones. */
struct ct_layer {
  struct ct_installed installed;
  uint16_t *modes; /* for each function of the plan, ct_planned_sort of its trampoline here; 0: none */
};

struct ct_module {
  uint32_t index; /* in the recording */
  uint32_t image;
  char *path;
  char *build_id; /* lower-case hex, NULL when the file could not be read */
  uint64_t inode;
  uint32_t device_major, device_minor;
  uint64_t base;                    /* load bias */
  uint64_t text_start;              /* of its first executable mapping */
  const struct ct_plan *plan;       /* NULL when the file could not be planned */
  char *why_not;                    /* and why, one line */
  const struct ct_plan *known_plan; /* the same, kept when the image has ended; NULL: no function of it has an id */
  uint32_t first_fn;                /* as installed.first_fn, likewise */
  struct ct_installed installed;
  bool unpublished;                            /* its functions are not in the trace's table yet ... */
  struct ct_filter_result first_filter_result; /* ... and what the filter selected of them */
  uint16_t *modes;                             /* as in ct_layer, of installed */
  struct ct_layer *layers;
  size_t layer_count;
  uint16_t *active; /* for each function which trampoline its entry goes to: 0 none, 1 that of installed, from 2 on that
                       of a layer; NULL: nothing has been changed since it was installed */
  uint8_t *without_patch; /* for each function, not 0: a budget has taken its patch out; NULL: of none */
  size_t functions, hooked;
  size_t refused[CT_REFUSED_COUNT];
  uint64_t code_bytes, known_bytes;      /* text, and what of it belongs to known functions */
  uint64_t plan_ns, install_ns;          /* of the first load; of the last one */
  uint64_t trampoline_bytes, text_bytes; /* memory that the hooks took in the program, of the last load */
  uint32_t loads;
  uint64_t gates_seen; /* by a budget: what its gates are of, in budget_levels.c */
  uint64_t changed_ns; /* when it was last put in or taken out, CLOCK_MONOTONIC */
  uint8_t runtime;     /* enum ct_runtime */
  bool loaded;
  bool has_rendezvous; /* its function that the loader calls when libraries come and go is hooked */
};

struct ct_modules {
  struct ct_module *items;
  size_t count, capacity;
  struct ct_plans *plans; /* the session's or the tree's */
  uint32_t next_fn;
  struct ct_exclude *exclude;      /* what the user does not want; NULL: nothing */
  struct ct_selection *selection;  /* what the user wants; NULL: everything */
  struct ct_rules *rules;          /* what calls are held against; NULL: nothing */
  size_t watched[CT_RULES_MAX];    /* functions that each of these is about, in all modules so far */
  uint32_t details_on;             /* of these, a bit for each, those in whose window their functions have detail */
  const atomic_bool *is_cancelled; /* true: no file more; NULL: never */
};

/* True: CT_ECANCELED is the answer. */
static inline bool
ct_modules_are_cancelled(const struct ct_modules *modules)
{
  return modules->is_cancelled != NULL && atomic_load_explicit(modules->is_cancelled, memory_order_relaxed);
}

/* What a new module is made known to. */
struct ct_module_sinks {
  struct ct_trace_writer *writer;
  struct ct_drain *drain;
};

/*
 * Looks at the target's mappings: forgets modules that are gone, installs those that are new. Returns the number of new
 * modules, or a negative error that concerns the whole process. A module that cannot be hooked is listed with the
 * reason.
 */
int ct_modules_update(struct ct_modules *modules, uint32_t image, const struct ct_remote *remote,
                      struct ct_agent_layout *layout, const struct ct_module_sinks *sinks, struct ct_diag *diag);
/*
 * Brings the functions of new modules into the trace. After an update, before the program can call any of them: no
 * event gets into the trace before its function's name. It waits for nobody, and takes some 50 ns for each function.
 */
void ct_modules_publish(struct ct_modules *modules, const struct ct_module_sinks *sinks);
/*
 * What is selected has changed: puts hooks in and takes hooks out accordingly; the process is stopped (remote has the
 * pcs). filter_results: of ct_modules_filter. *busy: functions in whose first bytes a thread stands, so that they could
 * not be hooked now. 0 or a negative error.
 */
int ct_modules_change(struct ct_modules *modules, const struct ct_remote *remote, struct ct_agent_layout *layout,
                      struct ct_filter_result *filter_results, size_t *busy, struct ct_diag *diag);
/* What is to be hooked in each module, ahead of ct_modules_change. The plans are locked. NULL: out of memory. */
struct ct_filter_result *ct_modules_filter(struct ct_modules *modules, int pid);
/* After a filter result that nothing came of: has the selection know again what has become of each function. */
void ct_modules_reconcile(struct ct_modules *modules);
/* The same for one. The plans are locked. 0 or CT_ENOMEM. */
int ct_module_filter(struct ct_modules *modules, const struct ct_module *module, bool is_program,
                     struct ct_filter_result *filter_result);
void ct_modules_filter_results_free(struct ct_modules *modules, struct ct_filter_result *filter_results);
/* Rule `slot` is held against the functions of all modules that are loaded; the plans are locked. */
int ct_modules_watch(struct ct_modules *modules, uint32_t slot, int pid);
/* The id of the function that begins at this address in the process; UINT32_MAX: none that has an id does. */
uint32_t ct_modules_function_at(const struct ct_modules *modules, uint64_t address);
/* The same for one, which has ids. */
/*
 * Where the function with that entry as it is patched is hooked: the bytes there, and what they were. False: nowhere.
 */
bool ct_modules_patch_at(const struct ct_modules *modules, uint64_t address, struct ct_patch *out);
/*
 * All patches, sorted by address, that do nothing but record: not those of functions whose hooks something else depends
 * on. To be freed; NULL: none, or out of memory.
 */
struct ct_patch *ct_modules_patches(const struct ct_modules *modules, size_t *count);
/* Functions whose calls that probe is about. */
size_t ct_modules_probed(const struct ct_modules *modules, uint32_t probe);
/* NULL: the function with that id has none, or there is none (any more). Valid until the modules change. */
const char *ct_modules_name(const struct ct_modules *modules, uint32_t fn);
int ct_module_watch(struct ct_modules *modules, const struct ct_module *module, uint32_t slot, bool is_program);
/*
 * False when patches should be in place and none of some that were looked at is: the module has been mapped anew. One
 * alone does not tell, somebody may have set a breakpoint there.
 */
bool ct_module_holds(const struct ct_module *module, const struct ct_remote *remote);
/* What layer number which, from 1 on, has put in. */
const struct ct_installed *ct_module_installed(const struct ct_module *module, size_t which);
/* Forgets the layers and what is active, but not what is in the process. */
void ct_module_drop_layers(struct ct_module *module);

/*
 * For loaders that do not tell: are there modules in the mappings that are not known, or is one gone? Plans new ones
 * ahead, and finds what patterns match in them, so that the process need not be stopped for long.
 */
bool ct_modules_check(struct ct_modules *modules, int pid);
/* True when a loaded module reports new ones by its rendezvous. */
bool ct_modules_have_rendezvous(const struct ct_modules *modules);
/* Where signal handlers of process pid return to the kernel: up to max addresses into list, returns their number. */
size_t ct_modules_restorers(struct ct_modules *modules, int pid, uint64_t *list, size_t max);
/*
 * When the installation in process pid must be done, by CLOCK_MONOTONIC: in wanted_ms, 0: by what there is to do.
 * is_fresh: it has not begun to run, so nobody misses it while it is stopped.
 */
uint64_t ct_modules_deadline(struct ct_modules *modules, int pid, bool is_fresh, uint32_t wanted_ms);
/* The functions of all modules that are loaded, and how many of them are hooked. */
void ct_modules_count(const struct ct_modules *modules, size_t *functions, size_t *hooked);
/* True when a thread that stands at one of the places is in a function that asks the kernel for signal dispositions. */
bool ct_modules_in_sigaction(const struct ct_modules *modules, const uint64_t *pcs, size_t count);
/* A loaded module that may take gs with no hook to report it; NULL when there is none. */
const struct ct_module *ct_modules_gs_danger(const struct ct_modules *modules);
/* The plan of a process's program, ahead of its modules; NULL when it cannot be planned. */
const struct ct_plan *ct_modules_program(struct ct_modules *modules, int pid);
/* A new one, all zero but its index; NULL: out of memory. */
struct ct_module *ct_modules_append(struct ct_modules *modules);
/* The modules of a process for its forked child, with the same function ids. The child's list is all zero. */
int ct_modules_clone(const struct ct_modules *modules, struct ct_modules *child);
/* Makes all ids known to the drain, and marks their functions as unpublished. 0 or CT_ENOMEM. */
int ct_modules_publish_again(struct ct_modules *modules, int pid, struct ct_drain *drain);
/*
 * The child was forked while modules were put into its parent: what did not get into the child is put in, or forgotten.
 * since_ns: not what was done before.
 */
int ct_modules_complete(struct ct_modules *modules, const struct ct_remote *remote, uint64_t since_ns);
/* All modules are gone, and with them what was in the process: another image follows. */
void ct_modules_forget(struct ct_modules *modules);
/*
 * Writes source files and lines of functions, where debug information has it: of modules that a pattern has asked
 * about, or of all. It may take seconds. 0 or an error.
 */
int ct_modules_write_sources(const struct ct_modules *modules, bool all, struct ct_trace_writer *writer);
/*
 * The same of what functions take and give, for those that have values in the trace.
 */
int ct_modules_write_prototypes(const struct ct_modules *modules, struct ct_trace_writer *writer);
/* Where prototypes are read: of the modules at this time, for who has no part in them. Valid as long as the plans. */
struct ct_prototype_source {
  const struct ct_plan *plan;
  uint32_t first_fn;
};
/* The list goes to free(); NULL: out of memory. */
size_t ct_modules_prototype_sources(const struct ct_modules *modules, struct ct_prototype_source **out);
/* The lines of prototypes.tsv after the first, also while it is recorded; *text goes to free(). Any thread. 0 or an
 * error. */
int ct_prototypes_text(const struct ct_prototype_source *sources, size_t count, struct ct_plans *plans,
                       const struct ct_trace_writer *writer, char **text, size_t *size);
void ct_modules_free(struct ct_modules *modules);

#endif
