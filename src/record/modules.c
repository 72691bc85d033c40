/* SPDX-License-Identifier: MIT */
/* Modules of a recording; see modules.h. */
#include "record/modules.h"

#include "base/clock.h"
#include "base/rooted.h"

#include "target/functions.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* Of the start-up deadline: for a process that is stopped at work, and for one that has not begun, ... */
#define TOLERANCE_NS       3000000000ull
#define FRESH_TOLERANCE_NS 100000000000ull /* nobody waits for a program that has not begun */
#define FUNCTION_NS        50000ull /* ... and what it allows for each function: some fifty times what one takes */

struct ct_module *
ct_modules_append(struct ct_modules *modules)
{
  if (modules->count == modules->capacity) {
    size_t grown = modules->capacity == 0 ? 32 : modules->capacity * 2;
    struct ct_module *items = realloc(modules->items, grown * sizeof(*items));
    if (items == NULL) {
      return NULL;
    }
    modules->items = items;
    modules->capacity = grown;
  }
  struct ct_module *module = &modules->items[modules->count];
  memset(module, 0, sizeof(*module));
  module->index = (uint32_t)modules->count++;
  return module;
}

static bool
is_module(const struct ct_mapping *mapping)
{
  return mapping->executable && mapping->inode != 0 && mapping->path[0] == '/' && !mapping->shared;
}

static struct ct_module *
known(struct ct_modules *modules, const struct ct_mapping *mapping)
{
  for (size_t i = 0; i < modules->count; i++) {
    struct ct_module *module = &modules->items[i];
    if (module->loaded && module->text_start == mapping->start && module->inode == mapping->inode &&
        module->device_major == mapping->device_major && module->device_minor == mapping->device_minor) {
      return module;
    }
  }
  return NULL;
}

/* A second executable mapping of a module that is known (or split up by mprotect). */
static bool
is_part_of_known(struct ct_modules *modules, const struct ct_mapping *mapping)
{
  for (size_t i = 0; i < modules->count; i++) {
    struct ct_module *module = &modules->items[i];
    if (!module->loaded || module->plan == NULL || module->inode != mapping->inode ||
        module->device_major != mapping->device_major || module->device_minor != mapping->device_minor) {
      continue;
    }
    const struct ct_elf_segment *segments;
    size_t count = ct_elf_segments(module->plan->elf, &segments);
    for (size_t s = 0; s < count; s++) {
      uint64_t start = module->base + segments[s].address;
      if (mapping->start < start + segments[s].memory_bytes && mapping->end > start) {
        return true;
      }
    }
  }
  return false;
}

/* The load bias, from the executable segment that the mapping shows. */
static int
load_bias(const struct ct_plan *plan, const struct ct_mapping *mapping, uint64_t *base)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(plan->elf, &segments);
  for (size_t s = 0; s < count; s++) {
    uint64_t page_offset = segments[s].offset & ~(uint64_t)(CT_PAGE_BYTES - 1);
    if ((segments[s].flags & PF_X) != 0 && mapping->offset >= page_offset &&
        mapping->offset < segments[s].offset + segments[s].file_bytes) {
      *base = mapping->start - (mapping->offset - page_offset) - (segments[s].address & ~(uint64_t)(CT_PAGE_BYTES - 1));
      return 0;
    }
  }
  return CT_EFORMAT;
}

/* Calls visit with each function of the module that has an id. */
static int
each_id(const struct ct_module *module, int (*visit)(void *context, uint32_t fn, const struct ct_planned *planned),
        void *context)
{
  uint32_t fn = module->installed.first_fn;
  int code = 0;
  for (size_t i = 0; i < module->plan->count && code == 0; i++) {
    const struct ct_planned *planned = &module->plan->functions[i];
    if (planned->refusal == CT_REFUSED_NOT) {
      code = visit(context, fn++, planned);
    }
  }
  return code;
}

struct function_sink {
  struct ct_function_lines lines;
  const struct ct_module *module;
  const struct ct_filter_result *filter_result;
};

static const char *
mode_name(const struct ct_planned *planned, const struct ct_filter_result *filter_result, const struct ct_plan *plan)
{
  enum ct_requested_mode requested = ct_filter_result_mode(filter_result, (size_t)(planned - plan->functions));
  if (!ct_requested_has_event(requested)) {
    return ct_refusal_key(ct_filter_result_reason(filter_result, (size_t)(planned - plan->functions)));
  }
  uint8_t mode = ct_planned_mode(planned, requested);
  return mode == CT_HOOK_FULL ? "full" : mode == CT_HOOK_SAMPLED ? "light" : "enter";
}

static int
write_function(void *context, uint32_t fn, const struct ct_planned *planned)
{
  struct function_sink *to = context;
  return ct_function_lines_add(&to->lines, fn, to->module->index, planned->address, planned->size,
                               mode_name(planned, to->filter_result, to->module->plan),
                               planned->name != NULL ? planned->name : "");
}

/* Written before the drain's next block. A failure stays in the writer. */
void
ct_modules_publish(struct ct_modules *modules, const struct ct_module_sinks *sinks)
{
  struct function_sink to = {.lines = {.writer = sinks->writer}};
  for (size_t i = 0; i < modules->count; i++) {
    struct ct_module *module = &modules->items[i];
    if (!module->unpublished) {
      continue;
    }
    if (module->plan != NULL) {
      to.module = module;
      to.filter_result = &module->first_filter_result;
      each_id(module, write_function, &to);
    }
    ct_filter_result_free(&module->first_filter_result);
    module->unpublished = false;
  }
  ct_function_lines_end(&to.lines);
}

static int
publish_mode(void *context, uint32_t fn, const struct ct_planned *planned)
{
  ct_drain_function_mode(context, fn, planned->mode);
  return 0;
}

/* Its callout, if it has one, is in place: a function that is not wanted keeps it. */
static bool
has_trampoline(const struct ct_module *module, size_t i)
{
  uint8_t install_refusal =
      module->installed.install_refusals == NULL ? CT_REFUSED_NOT : module->installed.install_refusals[i];
  return module->plan->functions[i].refusal == CT_REFUSED_NOT &&
         (install_refusal == CT_REFUSED_NOT || ct_refusal_by_user((enum ct_refusal)install_refusal));
}

/* What could not be put in, by reason, and what that means for libraries to come. */
static void
summarise(struct ct_module *module)
{
  module->has_rendezvous = false;
  for (size_t i = 0; i < module->plan->count; i++) {
    module->has_rendezvous |= module->plan->functions[i].callout == CT_CALLOUT_RENDEZVOUS && has_trampoline(module, i);
  }
  memcpy(module->refused, module->plan->refused, sizeof(module->refused));
  for (size_t i = 0; i < module->plan->count && module->installed.install_refusals != NULL; i++) {
    module->refused[module->installed.install_refusals[i]] += module->installed.install_refusals[i] != CT_REFUSED_NOT;
  }
}

/* Gives the agent the address where the loader notes that it is busy, if this module is the loader. */
static int
publish_loader_state(const struct ct_module *module, const struct ct_remote *remote,
                     const struct ct_agent_layout *layout)
{
  if (module->plan->r_debug == 0) {
    return 0;
  }
  uint64_t at = module->base + module->plan->r_debug + offsetof(struct r_debug, r_state);
  return ct_process_write(remote->process, layout->config + offsetof(struct ct_agent_config, loader_state), &at,
                          sizeof(at));
}

/* Which functions have a trampoline, and of which kind. */
static int
note_modes(struct ct_module *module, const struct ct_filter_result *filter_result)
{
  const struct ct_plan *plan = module->plan;
  free(module->modes);
  module->modes = calloc(plan->count + 1, sizeof(*module->modes));
  for (size_t i = 0; module->modes != NULL && i < plan->count; i++) {
    enum ct_requested_mode requested = ct_filter_result_mode(filter_result, i);
    if (requested != CT_REQUESTED_NONE && has_trampoline(module, i)) {
      module->modes[i] = ct_planned_sort(plan, filter_result, i);
    }
  }
  return module->modes != NULL ? 0 : CT_ENOMEM;
}

static int
install(struct ct_modules *modules, struct ct_module *module, const struct ct_remote *remote,
        struct ct_agent_layout *layout, const struct ct_module_sinks *sinks, struct ct_diag *diag)
{
  const struct ct_plan *plan = module->plan;
  bool first = module->loads == 1;
  uint32_t first_fn = first ? modules->next_fn : module->installed.first_fn;
  if (first && modules->next_fn + plan->hooked > CT_FN_MAX) {
    return ct_fail(diag, CT_ERANGE, "too many functions in one recording");
  }
  if (first) { /* before the hooks are there: the drain must know every id that can arrive */
    module->installed.first_fn = first_fn;
    module->first_fn = first_fn;
    module->known_plan = plan;
    each_id(module, publish_mode, sinks->drain);
    modules->next_fn += (uint32_t)plan->hooked;
  } else if (module->installed.region != 0 && module->installed.base == module->base && module->active == NULL &&
             ct_install_again(remote, layout, plan, &module->installed) == 0) {
    free(module->without_patch); /* all have theirs */
    module->without_patch = NULL;
    return 0;
  } else {
    ct_install_remove(remote, layout, &module->installed);
    for (size_t i = 0; i < module->layer_count; i++) {
      ct_install_remove(remote, layout, &module->layers[i].installed);
    }
    ct_module_drop_layers(module);
  }
  struct ct_filter_result filter_result;
  bool is_program = plan == ct_modules_program(modules, remote->process->pid);
  ct_plans_lock(modules->plans);
  int code = ct_module_filter(modules, module, is_program, &filter_result);
  for (uint32_t slot = 0; first && modules->rules != NULL && slot < CT_RULES_MAX && code == 0; slot++) {
    code = ct_module_watch(modules, module, slot, is_program);
  }
  ct_plans_unlock(modules->plans);
  if (code != 0) {
    ct_filter_result_free(&filter_result);
    return ct_fail(diag, code, "out of memory");
  }
  code = ct_install_module(remote, layout, plan, &filter_result, module->base, first_fn, &module->installed, diag);
  module->installed.first_fn = first_fn;
  if (code == 0) {
    code = note_modes(module, &filter_result);
  }
  if (code == 0 && first) {
    ct_plans_lock(modules->plans);
    ct_select_reconcile(modules->selection, plan, module->path, module->installed.install_refusals);
    ct_plans_unlock(modules->plans);
    module->first_filter_result = filter_result;
    module->unpublished = true;
    return publish_loader_state(module, remote, layout);
  }
  ct_filter_result_free(&filter_result);
  return code;
}

/* A module of the same file that is gone: its record, and the ids of its functions, are used again. */
static struct ct_module *
find_gone(struct ct_modules *modules, uint32_t image, const struct ct_mapping *mapping, const struct ct_plan *plan)
{
  for (size_t i = 0; i < modules->count; i++) {
    struct ct_module *module = &modules->items[i];
    if (!module->loaded && module->image == image && module->plan == plan && plan != NULL && module->why_not == NULL &&
        strcmp(module->path, mapping->path) == 0) {
      return module;
    }
  }
  return NULL;
}

/* The plan of the file behind a mapping, as the target sees it: it may live in another root. */
static int
plan_of_mapping(struct ct_modules *modules, const struct ct_mapping *mapping, int pid, bool count_it,
                struct ct_plan **plan, bool *fresh, struct ct_diag *why)
{
  char path[PATH_MAX + 64];
  int fd =
      ct_modules_are_cancelled(modules) ? CT_ECANCELED : ct_process_open_mapped(pid, mapping, path, sizeof(path), why);
  if (fd < 0) {
    return fd;
  }
  int code = ct_plans_get(modules->plans, fd, path, count_it, plan, fresh, why);
  close(fd);
  return code;
}

static struct ct_module *
new_module(struct ct_modules *modules, uint32_t image, const struct ct_mapping *mapping, const struct ct_plan *plan)
{
  struct ct_module *module = ct_modules_append(modules);
  if (module == NULL || (module->path = strdup(mapping->path)) == NULL) {
    return NULL;
  }
  module->image = image;
  module->plan = plan;
  if (plan != NULL) {
    module->functions = plan->count;
    module->runtime = plan->runtime;
    module->build_id = strdup(ct_elf_build_id(plan->elf));
  }
  return module;
}

/*
 * A program may map a piece of a file's text once more (V8 does, to have its builtins near its code): no loader has
 * been there, and what refers to the rest of the module is not what the piece runs with. Its ELF header says so.
 */
static bool
is_whole(const struct ct_plan *plan, uint64_t base, const struct ct_remote *remote)
{
  char magic[SELFMAG];
  const struct ct_elf_segment *segments;
  return ct_elf_segments(plan->elf, &segments) == 0 || segments[0].offset != 0 ||
         (ct_process_read(remote->process, base + segments[0].address, magic, sizeof(magic)) == 0 &&
          memcmp(magic, ELFMAG, sizeof(magic)) == 0);
}

/* Is a function that is hooked elsewhere in this piece too? Then its calls here are not recorded; else nothing is
 * missing. */
static bool
piece_has_hooks(const struct ct_plan *plan, const struct ct_mapping *mapping)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(plan->elf, &segments);
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    for (size_t s = 0; planned->refusal == CT_REFUSED_NOT && s < count; s++) {
      uint64_t offset = planned->address - segments[s].address + segments[s].offset;
      if (planned->address >= segments[s].address && planned->address < segments[s].address + segments[s].file_bytes &&
          offset >= mapping->offset && offset < mapping->offset + (mapping->end - mapping->start)) {
        return true;
      }
    }
  }
  return false;
}

static int
add_module(struct ct_modules *modules, uint32_t image, const struct ct_mapping *mapping, const struct ct_remote *remote,
           struct ct_agent_layout *layout, const struct ct_module_sinks *sinks, struct ct_diag *diag)
{
  struct ct_diag why = {""};
  struct ct_plan *plan = NULL;
  bool fresh = false, nothing_missing = false;
  int code = plan_of_mapping(modules, mapping, remote->process->pid, true, &plan, &fresh, &why);
  uint64_t base = 0;
  if (code == 0) {
    code = load_bias(plan, mapping, &base);
    if (code != 0) {
      ct_fail(&why, code, "its mapping does not fit its program headers");
    } else if (!is_whole(plan, base, remote)) {
      code = ct_fail(&why, CT_EUNSUPPORTED, "only a piece of its text is mapped here");
      nothing_missing = !piece_has_hooks(plan, mapping);
    }
    plan = code == 0 ? plan : NULL;
  }
  struct ct_module *module = find_gone(modules, image, mapping, plan);
  if (module == NULL) {
    module = new_module(modules, image, mapping, plan);
  }
  if (module == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  module->inode = mapping->inode;
  module->device_major = mapping->device_major;
  module->device_minor = mapping->device_minor;
  module->text_start = mapping->start;
  module->loaded = true;
  module->loads++;
  module->changed_ns = UINT64_MAX; /* until it is done */
  if (code == 0) {
    module->plan_ns += fresh ? plan->plan_ns : 0;
    module->code_bytes = plan->code_bytes;
    module->known_bytes = plan->known_bytes;
    module->base = base;
    if (plan->gs_unsafe) {
      code = ct_fail(&why, CT_EUNSUPPORTED, "it uses the gs register itself");
    } else {
      code = install(modules, module, remote, layout, sinks, &why);
    }
    module->hooked = module->installed.hooked;
    module->install_ns = module->installed.install_ns;
    module->trampoline_bytes = module->installed.trampoline_bytes;
    module->text_bytes = module->installed.text_bytes;
    summarise(module);
  }
  module->changed_ns = ct_now_ns();
  if (code == CT_ETIMEOUT && remote->deadline_ns != 0) {
    return ct_fail(diag, code, "the hooks could not be put in in time (%s was not done)", module->path);
  }
  if (code != 0 && !nothing_missing) {
    free(module->why_not);
    module->why_not = strdup(why.text[0] != '\0' ? why.text : ct_err_text(code));
    module->hooked = 0;
  }
  return 0;
}

static bool
is_mapped(const struct ct_module *module, const struct ct_mappings *mappings)
{
  for (size_t m = 0; m < mappings->count; m++) {
    const struct ct_mapping *mapping = &mappings->items[m];
    if (mapping->inode == module->inode && mapping->device_minor == module->device_minor &&
        mapping->device_major == module->device_major && module->text_start >= mapping->start &&
        module->text_start < mapping->end) {
      return true;
    }
  }
  return false;
}

/* Notes modules whose text is no longer mapped, or mapped anew without our patches. The number of them, or an error. */
static int
forget_unloaded(struct ct_modules *modules, const struct ct_mappings *mappings, const struct ct_remote *remote,
                const struct ct_agent_layout *layout)
{
  int gone = 0;
  for (size_t i = 0; i < modules->count; i++) {
    struct ct_module *module = &modules->items[i];
    if (!module->loaded || (is_mapped(module, mappings) && ct_module_holds(module, remote))) {
      continue;
    }
    module->loaded = false;
    gone++;
    if (module->plan != NULL) {
      int code = ct_install_mark_text(remote, layout, module->plan, module->base, CT_TEXT_OTHER);
      if (code != 0) {
        return code;
      }
    }
  }
  return gone;
}

/* The byte of the table at the edge of something that is gone may stand for another module's text as well. */
static int
mark_text_again(struct ct_modules *modules, const struct ct_remote *remote, const struct ct_agent_layout *layout)
{
  int code = 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    struct ct_module *module = &modules->items[i];
    if (module->plan != NULL && module->loaded) {
      code = ct_install_mark_text(remote, layout, module->plan, module->base, CT_TEXT_MODULE);
    }
  }
  return code;
}

struct restorers {
  uint64_t *list;
  size_t count, max;
};

static void
add_restorers(void *context, const struct ct_plan *plan, uint64_t base)
{
  struct restorers *to = context;
  for (size_t f = 0; plan->refused[CT_REFUSED_SIGNAL_FRAME] != 0 && f < plan->count && to->count < to->max; f++) {
    if (plan->functions[f].refusal == CT_REFUSED_SIGNAL_FRAME) {
      to->list[to->count++] = base + plan->functions[f].address;
    }
  }
}

struct unwinding {
  struct ct_unwinder list[CT_UNWINDING_MAX];
  size_t count;
};

/* The functions of the unwinders in a module. */
static void
add_unwinding(void *context, const struct ct_plan *plan, uint64_t base)
{
  static const char *const prefixes[] = {"_Unwind_", "unw_", "__unw_", "_ULx86_64_", "_Ux86_64_"};
  struct unwinding *to = context;
  bool has_one = plan->own_unwinder;
  for (size_t f = 0; f < plan->count && !has_one; f++) {
    has_one = plan->functions[f].callout == CT_CALLOUT_FIND_FDE;
  }
  for (size_t f = 0; has_one && f < plan->count && to->count < CT_UNWINDING_MAX; f++) {
    const struct ct_planned *planned = &plan->functions[f];
    for (size_t i = 0; planned->name != NULL && i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
      if (strncmp(planned->name, prefixes[i], strlen(prefixes[i])) == 0) {
        uint64_t start = base + planned->address;
        to->list[to->count++] = (struct ct_unwinder){start, start + planned->size};
        break;
      }
    }
  }
}

/*
 * Calls visit with each module in the mappings of the process and its plan, made now if it is not known yet. Files of
 * those that are known are not opened: a budget stops the process about once a second, each time after such a look.
 */
static void
each_plan(struct ct_modules *modules, int pid, void (*visit)(void *context, const struct ct_plan *plan, uint64_t base),
          void *context)
{
  struct ct_mappings mappings;
  if (ct_process_mappings(pid, &mappings) != 0) {
    return;
  }
  for (size_t m = 0; m < mappings.count; m++) {
    struct ct_plan *plan;
    bool fresh;
    uint64_t base;
    if (!is_module(&mappings.items[m])) {
      continue;
    }
    const struct ct_module *module = known(modules, &mappings.items[m]);
    if (module != NULL && module->plan != NULL) {
      visit(context, module->plan, module->base);
    } else if (plan_of_mapping(modules, &mappings.items[m], pid, false, &plan, &fresh, NULL) == 0 &&
               load_bias(plan, &mappings.items[m], &base) == 0) {
      visit(context, plan, base);
    }
  }
  ct_mappings_free(&mappings);
}

struct published {
  const struct ct_modules *modules;
  struct restorers restorers;
  struct unwinding unwinding;
};

static void
add_published(void *context, const struct ct_plan *plan, uint64_t base)
{
  struct published *published = context;
  add_restorers(&published->restorers, plan, base);
  if (ct_plans_unwinds(published->modules->plans, plan)) {
    add_unwinding(&published->unwinding, plan, base);
  }
}

/* For whoever takes the hooks out. */
static int
publish_restorers(struct ct_modules *modules, const struct ct_remote *remote, const struct ct_agent_layout *layout)
{
  uint64_t list[CT_RESTORER_MAX] = {0};
  struct published published = {.modules = modules, .restorers = {list, 0, CT_RESTORER_MAX}};
  each_plan(modules, remote->process->pid, add_published, &published);
  int code = ct_process_write(remote->process, layout->config + offsetof(struct ct_agent_config, restorers), list,
                              sizeof(list));
  return code != 0 ? code
                   : ct_process_write(remote->process, layout->config + offsetof(struct ct_agent_config, unwinding),
                                      published.unwinding.list, sizeof(published.unwinding.list));
}

/* Counts what patterns match in the modules that are new, before anything is selected in one of them. */
static int
count_matches(struct ct_modules *modules, const struct ct_mappings *mappings, int pid)
{
  int code = 0;
  const struct ct_plan *program = ct_modules_program(modules, pid);
  ct_plans_lock(modules->plans);
  bool everything = ct_selection_is_everything(modules->selection);
  for (size_t m = 0; !everything && m < mappings->count && code == 0; m++) {
    const struct ct_mapping *mapping = &mappings->items[m];
    struct ct_plan *plan;
    bool fresh;
    if (is_module(mapping) && known(modules, mapping) == NULL && !is_part_of_known(modules, mapping) &&
        plan_of_mapping(modules, mapping, pid, false, &plan, &fresh, NULL) == 0) {
      code = ct_select_count(modules->selection, plan, mapping->path, plan == program);
    }
  }
  ct_plans_unlock(modules->plans);
  return code;
}

static int
add_modules(struct ct_modules *modules, uint32_t image, const struct ct_mappings *mappings,
            const struct ct_remote *remote, struct ct_agent_layout *layout, const struct ct_module_sinks *sinks,
            int *added, struct ct_diag *diag)
{
  int code = 0;
  for (size_t m = 0; m < mappings->count && code == 0; m++) {
    const struct ct_mapping *mapping = &mappings->items[m];
    if (!is_module(mapping) || known(modules, mapping) != NULL || is_part_of_known(modules, mapping)) {
      continue;
    }
    if (ct_modules_are_cancelled(modules)) {
      return ct_fail(diag, CT_ECANCELED, "cancelled");
    }
    code = add_module(modules, image, mapping, remote, layout, sinks, diag);
    (*added)++;
    if (code == 0 && remote->deadline_ns != 0 && ct_now_ns() > remote->deadline_ns) {
      code = ct_fail(diag, CT_ETIMEOUT, "the hooks could not be put in in time (%zu modules done)", modules->count);
    }
  }
  return code;
}

/* In a process that is stopped: what was installed is patched in, the guards of all modules first. */
static int
patch_all(struct ct_modules *modules, const struct ct_remote *remote, bool guards_only)
{
  int code = 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    struct ct_module *module = &modules->items[i];
    if (module->installed.unpatched) {
      code = ct_install_patch(remote, &module->installed, guards_only);
      module->text_bytes = module->installed.text_bytes;
    }
  }
  return code;
}

/*
 * We may be killed on the way: in a process that has begun to run, whoever takes the hooks out again gets all of it
 * first, and the guards (CT_PATCH_GUARD) are patched in before anything else.
 */
int
ct_modules_update(struct ct_modules *modules, uint32_t image, const struct ct_remote *remote,
                  struct ct_agent_layout *layout, const struct ct_module_sinks *sinks, struct ct_diag *diag)
{
  struct ct_mappings mappings, room = {NULL};
  int added = 0;
  int code = ct_process_mappings(remote->process->pid, &mappings);
  if (code != 0) {
    return ct_fail(diag, code, "cannot read the mappings of process %d", (int)remote->process->pid);
  }
  int gone = forget_unloaded(modules, &mappings, remote, layout);
  code = gone < 0 ? gone : gone > 0 ? mark_text_again(modules, remote, layout) : 0;
  if (code != 0 || (code = count_matches(modules, &mappings, remote->process->pid)) != 0) {
    goto free_mappings;
  }
  if (remote->pcs != NULL && (code = publish_restorers(modules, remote, layout)) != 0) {
    goto free_mappings;
  }
  struct ct_remote with_room = *remote;
  with_room.mappings = ct_mappings_copy(&mappings, &room) == 0 ? &room : NULL;
  if ((code = add_modules(modules, image, &mappings, &with_room, layout, sinks, &added, diag)) != 0 ||
      (code = patch_all(modules, remote, true)) != 0 || (code = patch_all(modules, remote, false)) != 0) {
    goto free_mappings;
  }
  if (added > 0) {
    code = publish_restorers(modules, remote, layout);
  }
free_mappings:
  ct_mappings_free(&room);
  ct_mappings_free(&mappings);
  return code != 0 ? code : added;
}

bool
ct_modules_check(struct ct_modules *modules, int pid)
{
  struct ct_mappings mappings;
  bool changed = false;
  if (ct_process_mappings(pid, &mappings) != 0) {
    return false;
  }
  for (size_t i = 0; i < modules->count; i++) {
    changed |= modules->items[i].loaded && !is_mapped(&modules->items[i], &mappings);
  }
  for (size_t m = 0; m < mappings.count; m++) {
    const struct ct_mapping *mapping = &mappings.items[m];
    if (is_module(mapping) && known(modules, mapping) == NULL && !is_part_of_known(modules, mapping)) {
      struct ct_plan *plan;
      bool fresh;
      plan_of_mapping(modules, mapping, pid, false, &plan, &fresh, NULL);
      changed = true;
    }
  }
  if (changed) {
    count_matches(modules, &mappings, pid); /* again when it is needed, should memory be short now */
  }
  ct_mappings_free(&mappings);
  return changed;
}

size_t
ct_modules_restorers(struct ct_modules *modules, int pid, uint64_t *list, size_t max)
{
  struct restorers to = {list, 0, max};
  each_plan(modules, pid, add_restorers, &to);
  return to.count;
}

static void
add_functions(void *context, const struct ct_plan *plan, uint64_t base)
{
  (void)base;
  *(uint64_t *)context += plan->hooked;
}

uint64_t
ct_modules_deadline(struct ct_modules *modules, int pid, bool is_fresh, uint32_t wanted_ms)
{
  uint64_t functions = 0, tolerance = is_fresh ? FRESH_TOLERANCE_NS : TOLERANCE_NS;
  each_plan(modules, pid, add_functions, &functions);
  return ct_now_ns() + (wanted_ms != 0 ? wanted_ms * 1000000ull : tolerance + functions * FUNCTION_NS);
}

int
ct_modules_publish_again(struct ct_modules *modules, int pid, struct ct_drain *drain)
{
  int code = 0;
  const struct ct_plan *program = ct_modules_program(modules, pid);
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    struct ct_module *module = &modules->items[i];
    if (module->plan == NULL || module->why_not != NULL) {
      continue;
    }
    ct_plans_lock(modules->plans);
    code = ct_module_filter(modules, module, module->plan == program, &module->first_filter_result);
    if (code == 0) { /* choosing has begun to count anew */
      ct_select_reconcile(modules->selection, module->plan, module->path, module->installed.install_refusals);
    }
    ct_plans_unlock(modules->plans);
    each_id(module, publish_mode, drain);
    module->unpublished = true;
  }
  return code;
}

void
ct_modules_forget(struct ct_modules *modules)
{
  for (size_t i = 0; i < modules->count; i++) {
    modules->items[i].loaded = false;
    modules->items[i].plan = NULL; /* its place in the table is gone with the image */
    ct_module_drop_layers(&modules->items[i]);
    ct_installed_free(&modules->items[i].installed);
  }
}

void
ct_modules_free(struct ct_modules *modules)
{
  for (size_t i = 0; i < modules->count; i++) {
    free(modules->items[i].path);
    free(modules->items[i].why_not);
    free(modules->items[i].build_id);
    ct_module_drop_layers(&modules->items[i]);
    ct_installed_free(&modules->items[i].installed);
    ct_filter_result_free(&modules->items[i].first_filter_result);
  }
  free(modules->items);
  memset(modules, 0, sizeof(*modules));
}
