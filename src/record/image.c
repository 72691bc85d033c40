/* SPDX-License-Identifier: MIT */
/*
 * Building the inside of a target from outside; see image.h. All mappings are made by system calls in the
 * target's name:
 *   ring      memfd, shared: header, tids, slots, segment table, segments
 *   agent     the flat image, private: code read-only, then its data
 *   controls  one control page and agent stack per slot, private, unreserved, wiped on fork
 *   table     one byte per 64 KiB of address space, private, unreserved
 *   store     the return store of the main stack, private, unreserved
 */
#include "record/image.h"

#include "agent/image.h"
#include "hook/signals.h"
#include "x86/trampoline.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const uint8_t ct_agent_blob[];
extern const uint8_t ct_agent_blob_end[];

#define STORE_DELTA (-(1ll << 45)) /* see docs/architecture.md: fits the usual and the legacy layout */
/*
 * Hints for our own mappings: below where the kernel places libraries, so that these find their usual places, and
 * above all that sanitizers take for their shadows.
 */
#define RING_HINT           0x7e9000000000ull
#define AGENT_HINT          0x7e9100000000ull
#define CONTROLS_HINT       0x7e9200000000ull
#define TABLE_HINT          0x7e9300000000ull
#define STACK_UNLIMITED     (1ull << 30) /* how much of an unlimited stack gets a store at first */
#define HWCAP2_HAS_FSGSBASE (1u << 1)
#define UNWIND_BYTES        512

static int
remote_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  return ct_process_syscall(context, number, args, result);
}

struct ct_remote
ct_image_remote(struct ct_process *process)
{
  return (struct ct_remote){.process = process, .syscall = remote_syscall, .context = process};
}

static int
remote_mmap(const struct ct_remote *remote, uint64_t address, uint64_t size, int prot, int flags, int fd,
            uint64_t *result)
{
  uint64_t args[6] = {address, size, (uint64_t)prot, (uint64_t)flags, (uint64_t)(int64_t)fd, 0};
  int64_t got = 0;
  int code = remote->syscall(remote->context, SYS_mmap, args, &got);
  if (code != 0) {
    return code;
  }
  if (got < 0 && got > -4096) {
    return CT_ENOMEM;
  }
  *result = (uint64_t)got;
  return 0;
}

/* One of our own, announced before it is there (see ct_room_announce) if it can be had at its usual place. */
static int
map_own(const struct ct_remote *remote, struct ct_image *image, uint64_t hint, uint64_t size, int flags,
        uint64_t *result)
{
  struct ct_pending *pending = &image->ring->inside.pending[CT_PENDING_OTHER];
  *pending = (struct ct_pending){hint, size};
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  int code = remote_mmap(remote, hint, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, result);
  if (code == CT_ENOMEM) {
    *pending = (struct ct_pending){0, 0};
    code = remote_mmap(remote, hint, size, PROT_READ | PROT_WRITE, flags, -1, result);
  }
  return code;
}

static uint64_t
page_up(uint64_t value)
{
  return (value + CT_PAGE_BYTES - 1) & ~(uint64_t)(CT_PAGE_BYTES - 1);
}

/* Fills the header of a fresh, zeroed ring. */
static void
lay_out_ring(struct ct_ring_header *ring, uint32_t segments, const struct ct_image_options *options, int pid)
{
  ring->version = CT_RING_VERSION;
  ring->target_pid = (uint32_t)pid;
  ring->slot_count = CT_SLOT_COUNT;
  ring->segment_count = segments;
  ring->tids_offset = CT_PAGE_BYTES;
  ring->visitors_offset = page_up(ring->tids_offset + CT_SLOT_COUNT * sizeof(uint32_t));
  ring->slots_offset = ring->visitors_offset + CT_VISITOR_COUNT * CT_VISITOR_BYTES;
  ring->table_offset = page_up(ring->slots_offset + CT_SLOT_COUNT * sizeof(struct ct_slot));
  ring->crash_offset = page_up(ring->table_offset + segments * sizeof(struct ct_segment_entry));
  ring->print_offset = ring->crash_offset + page_up(sizeof(struct ct_crash));
  ring->segments_offset = ring->print_offset + CT_PAGE_BYTES + CT_PRINT_PIECES * CT_PRINT_BYTES;
  /* Room to move the first segment to an address in the target that has CT_CURSOR_VALID. */
  ring->total_bytes = ring->segments_offset + (uint64_t)(segments + 1) * CT_SEGMENT_STRIDE;
  ring->lossless = options->lossless;
  ring->controller_pid = (uint32_t)getpid();
  ring->inside.controller_start = ct_process_start_time(getpid());
  for (uint32_t i = 0; i < segments; i++) {
    ring->free_map[i / 64] |= 1ull << (i % 64);
  }
  ring->magic = CT_RING_MAGIC;
}

static void
align_segments(struct ct_ring_header *ring, uint64_t address)
{
  while ((address + ring->segments_offset) % CT_SEGMENT_STRIDE != CT_CURSOR_VALID) {
    ring->segments_offset += CT_PAGE_BYTES;
  }
}

/* Maps the memfd that the target has as fd, here. */
static int
map_ring_here(const struct ct_remote *remote, int fd, const struct ct_image_options *options, struct ct_image *image,
              struct ct_diag *diag)
{
  int pid = remote->process->pid;
  uint32_t segments = (uint32_t)(options->ring_bytes / CT_SEGMENT_BYTES);
  segments = segments < 16 ? 16 : segments > CT_SEGMENT_MAX ? CT_SEGMENT_MAX : segments;
  struct ct_ring_header layout;
  memset(&layout, 0, sizeof(layout));
  lay_out_ring(&layout, segments, options, pid);
  char rest[32], path[64];
  snprintf(rest, sizeof(rest), "fd/%d", fd);
  ct_process_path(pid, rest, path, sizeof(path));
  int ours = open(path, O_RDWR | O_CLOEXEC);
  void *mapping = MAP_FAILED;
  if (ours >= 0 && ftruncate(ours, (off_t)layout.total_bytes) == 0) {
    mapping = mmap(NULL, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ours, 0);
  }
  int err = errno;
  if (ours >= 0) {
    close(ours);
  }
  if (mapping == MAP_FAILED) {
    return ct_fail(diag, ct_err_from_errno(err), "cannot map the ring: %s", strerror(err));
  }
  image->ring = mapping;
  image->ring_bytes = layout.total_bytes;
  memcpy(mapping, &layout, sizeof(layout));
  struct ct_slot *slots = (struct ct_slot *)((uint8_t *)mapping + layout.slots_offset);
  for (uint32_t i = 0; i < CT_SLOT_COUNT; i++) {
    slots[i].active_segment = CT_SEGMENT_NONE;
  }
  return 0;
}

/* Makes the memfd in the target and closes it when done. The target makes it, we map it through /proc: that works
 * whatever the target may open. */
static int
create_memfd(const struct ct_remote *remote, uint64_t name, int64_t *fd, struct ct_diag *diag)
{
  uint64_t args[6] = {name, MFD_CLOEXEC, 0, 0, 0, 0};
  *fd = -1;
  int code = remote->syscall(remote->context, SYS_memfd_create, args, fd);
  if (code != 0 || *fd < 0) {
    return ct_fail(diag, CT_EIO, "the process cannot make shared memory: %s",
                   code != 0 ? ct_err_text(code) : strerror((int)-*fd));
  }
  return 0;
}

static void
close_memfd(const struct ct_remote *remote, int64_t fd)
{
  int64_t ignored;
  uint64_t args[6] = {(uint64_t)fd};
  remote->syscall(remote->context, SYS_close, args, &ignored);
}

static int
create_ring(const struct ct_remote *remote, const struct ct_image_options *options, struct ct_image *image,
            struct ct_diag *diag)
{
  int64_t fd;
  int code = create_memfd(remote, ct_process_errand_name(remote->process), &fd, diag);
  if (code != 0) {
    return code;
  }
  code = map_ring_here(remote, (int)fd, options, image, diag);
  if (code == 0) {
    code = remote_mmap(remote, RING_HINT, image->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd,
                       &image->place.ring);
    align_segments(image->ring, image->place.ring);
    code = code == 0 ? 0 : ct_fail(diag, code, "the process cannot map the ring (a limit on address space?)");
  }
  close_memfd(remote, fd);
  return code;
}

/* Where the main stack lies; hi is 0 when there is none to be found. */
static int
find_main_stack(int pid, uint64_t sp, uint64_t *lo, uint64_t *hi, uint64_t *below)
{
  struct ct_mappings mappings;
  int code = ct_process_mappings(pid, &mappings);
  *lo = *hi = *below = 0;
  for (size_t i = 0; code == 0 && i < mappings.count; i++) {
    const struct ct_mapping *mapping = &mappings.items[i];
    bool is_it = sp != 0 ? sp >= mapping->start && sp < mapping->end : strcmp(mapping->path, "[stack]") == 0;
    if (is_it && mapping->writable) {
      *lo = mapping->start;
      *hi = mapping->end;
      break;
    }
    *below = mapping->end;
  }
  ct_mappings_free(&mappings);
  return code;
}

/* The store of the main stack, as far down as it may grow. */
static int
create_store(const struct ct_remote *remote, uint64_t sp, const struct ct_image_options *options,
             struct ct_image *image, struct ct_stack_range *range, struct ct_diag *diag)
{
  int64_t delta = image->place.store_delta;
  uint64_t at, lo, hi, below;
  *range = (struct ct_stack_range){0};
  if (find_main_stack(remote->process->pid, sp, &lo, &hi, &below) != 0) {
    return ct_fail(diag, CT_EIO, "cannot read the mappings of process %d", (int)remote->process->pid);
  }
  if (hi == 0) {
    return options->running ? 0 : ct_fail(diag, CT_EUNSUPPORTED, "the new program has no stack");
  }
  uint64_t limit = ct_process_stack_limit(remote->process->pid);
  limit = limit > STACK_UNLIMITED ? STACK_UNLIMITED : limit;
  uint64_t room = hi - limit > below && limit < hi ? (hi - limit) & ~(uint64_t)(CT_PAGE_BYTES - 1) : below;
  if (room < lo) {
    lo = room;
  }
  *range = (struct ct_stack_range){.lo = lo, .hi = hi, .light = options->no_stores};
  if (options->no_stores) {
    return 0;
  }
  image->ring->inside.pending[CT_PENDING_REGION] = (struct ct_pending){lo + (uint64_t)delta, hi - lo};
  int code = remote_mmap(remote, lo + (uint64_t)delta, hi - lo, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, &at);
  if (code != 0 || at != lo + (uint64_t)delta) {
    range->light = 1;
    return options->running
               ? 0
               : ct_fail(diag, CT_ENOMEM, "the new program cannot map its return store (a limit on address space?)");
  }
  return 0;
}

static int
place_agent(const struct ct_remote *remote, struct ct_image *image, struct ct_agent_image *agent)
{
  struct ct_agent_place *place = &image->place;
  memcpy(agent, ct_agent_blob, sizeof(*agent));
  size_t file_bytes = (size_t)(ct_agent_blob_end - ct_agent_blob);
  if (agent->magic != CT_AGENT_MAGIC || agent->memory_bytes < file_bytes) {
    return CT_EFORMAT;
  }
  uint64_t total = page_up(agent->memory_bytes) + CT_PAGE_BYTES; /* the last page: unwind templates */
  int code = map_own(remote, image, AGENT_HINT, total, 0, &place->base);
  if (code != 0) {
    return code;
  }
  image->ring->inside.agent_bytes = total;
  image->ring->inside.agent = place->base;
  code = ct_process_write(remote->process, place->base, ct_agent_blob, file_bytes);
  place->bytes = total;
  uint64_t args[6] = {place->base, agent->data_start, PROT_READ | PROT_EXEC};
  int64_t result = -1;
  if (code == 0) {
    code = remote->syscall(remote->context, SYS_mprotect, args, &result);
  }
  if (code == 0 && result != 0) {
    code = CT_EACCES;
  }
  place->crash = place->base + agent->crash;
  place->restorer = place->base + agent->restorer;
  place->scratch = place->base + total - CT_SIGNAL_SCRATCH_BYTES;
  place->config = place->base + agent->config;
  place->page_off = place->base + agent->page_off;
  place->page_lookup = place->base + agent->page_lookup;
  place->head = (struct ct_region_head){
      .slow_enter = place->base + agent->slow_enter,
      .slow_return = place->base + agent->slow_return,
      .not_module = place->base + agent->not_module,
      .callout_park = place->base + agent->callout_park,
      .callout_request = place->base + agent->callout_request,
      .callout_find_fde = place->base + agent->callout_find_fde,
      .callout_seccomp = place->base + agent->callout_seccomp,
      .callout_mlockall = place->base + agent->callout_mlockall,
      .callout_syscall = place->base + agent->callout_syscall,
      .callout_go_syscall = place->base + agent->callout_go_syscall,
      .callout_modules = place->base + agent->callout_modules,
      .callout_find_object = place->base + agent->callout_find_object,
      .callout_longjmp = place->base + agent->callout_longjmp,
      .callout_sigaction = place->base + agent->callout_sigaction,
      .callout_write = place->base + agent->callout_write,
      .callout_writev = place->base + agent->callout_writev,
      .restore_slot = place->base + agent->restore_slot,
      .restore_quiet = place->base + agent->restore_quiet,
      .light_due = place->base + agent->light_due,
  };
  return code;
}

/* A forked child finds 0 there. */
static int
mark_own(const struct ct_process *process, const struct ct_agent_place *place)
{
  static const uint64_t own = 1;
  return ct_process_write(process, place->controls + CT_CONTROL_OWN, &own, sizeof(own));
}

static int
place_controls(const struct ct_remote *remote, struct ct_image *image)
{
  struct ct_agent_place *place = &image->place;
  uint64_t size = (uint64_t)CT_SLOT_COUNT * CT_CONTROL_STRIDE;
  int code = map_own(remote, image, CONTROLS_HINT, size, MAP_NORESERVE, &place->controls);
  if (code != 0) {
    return code;
  }
  image->ring->inside.controls_bytes = size;
  image->ring->inside.controls = place->controls;
  uint64_t args[6] = {place->controls, size, MADV_WIPEONFORK};
  int64_t result = -1;
  code = remote->syscall(remote->context, SYS_madvise, args, &result);
  if (code == 0 && result != 0) {
    code = CT_EUNSUPPORTED; /* Linux before 4.14 */
  }
  if (code == 0) {
    code = map_own(remote, image, TABLE_HINT, CT_TABLE_BYTES, MAP_NORESERVE, &place->table);
  }
  if (code == 0) {
    image->ring->inside.table_bytes = CT_TABLE_BYTES;
    image->ring->inside.table = place->table;
  }
  /* What the agent calls back is called from a module: it looks at no slot of its own. */
  static const uint8_t module = CT_TEXT_MODULE;
  if (code == 0) {
    code = ct_process_write(remote->process, place->table + (place->base >> CT_TABLE_SHIFT), &module, sizeof(module));
  }
  return code == 0 ? mark_own(remote->process, place) : code;
}

static int
configure(const struct ct_process *process, struct ct_image *image, const struct ct_agent_image *agent,
          const struct ct_image_options *options, const struct ct_stack_range *stack)
{
  struct ct_agent_place *place = &image->place;
  struct ct_agent_config *config = calloc(1, sizeof(*config)); /* large */
  uint8_t unwind[UNWIND_BYTES];
  uint64_t unwind_at = place->base + page_up(agent->memory_bytes);
  if (config == NULL) {
    return CT_ENOMEM;
  }
  config->ring = place->ring;
  config->tids = place->ring + image->ring->tids_offset;
  config->controls = place->controls;
  config->table = place->table;
  config->store_delta = place->store_delta;
  config->no_stores = options->no_stores;
  config->pid = (uint32_t)process->pid;
  config->have_wrgsbase = (getauxval(AT_HWCAP2) & HWCAP2_HAS_FSGSBASE) != 0;
  config->page_off = place->page_off;
  config->page_lookup = place->page_lookup;
  config->signal_mask = ~0ull;
  config->visitors = options->follow ? place->ring + image->ring->visitors_offset : 0;
  config->stacks[0] = *stack;
  if (stack->hi != 0 && !stack->light) {
    config->stores[0] =
        (struct ct_store){stack->lo + (uint64_t)place->store_delta, stack->hi + (uint64_t)place->store_delta};
    config->store_count = 1;
  }
  struct ct_trampoline_rows rows;
  size_t bytes = ct_trampoline_unwind(place->store_delta, unwind, sizeof(unwind), unwind_at, &rows);
  if (bytes == 0) {
    free(config);
    return CT_ERANGE;
  }
  config->fde_full = rows.full;
  config->fde_values = rows.values;
  config->fde_enter = rows.enter;
  int code = ct_process_write(process, unwind_at, unwind, bytes);
  if (code == 0) {
    code = ct_process_write(process, place->config, config, sizeof(*config));
  }
  free(config);
  return code;
}

/* What was mapped of an image that did not come to be, but the main stack's store. */
static void
take_out(const struct ct_remote *remote, const struct ct_agent_place *place, uint64_t ring_bytes)
{
  const uint64_t parts[][2] = {{place->ring, ring_bytes},
                               {place->base, place->bytes},
                               {place->controls, (uint64_t)CT_SLOT_COUNT * CT_CONTROL_STRIDE},
                               {place->table, CT_TABLE_BYTES}};
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
    uint64_t args[6] = {parts[i][0], parts[i][1]};
    int64_t ignored;
    if (parts[i][0] != 0) {
      remote->syscall(remote->context, SYS_munmap, args, &ignored);
    }
  }
}

/* The agent is ready: another controller finds everything from here on. */
static void
tell_inside(struct ct_image *image, const struct ct_agent_image *agent)
{
  struct ct_inside *inside = &image->ring->inside;
  inside->back = image->place.base + agent->sigaction_back;
  inside->config = image->place.config;
  inside->pending[CT_PENDING_REGION] = inside->pending[CT_PENDING_OTHER] = (struct ct_pending){0, 0};
}

int
ct_image_create(const struct ct_remote *remote, uint64_t sp, const struct ct_image_options *options,
                struct ct_image *image, struct ct_diag *diag)
{
  struct ct_agent_image agent;
  struct ct_stack_range stack;
  memset(image, 0, sizeof(*image));
  image->place.store_delta = STORE_DELTA;
  int code = create_ring(remote, options, image, diag);
  if (code == 0) {
    code = place_agent(remote, image, &agent);
    if (code != 0) {
      ct_fail(diag, code, "cannot place the agent in the process: %s (a limit on address space?)", ct_err_text(code));
    }
  }
  if (code == 0) {
    code = create_store(remote, sp, options, image, &stack, diag);
  }
  if (code == 0) {
    code = place_controls(remote, image);
    if (code == 0) {
      code = configure(remote->process, image, &agent, options, &stack);
    }
    if (code == 0) {
      tell_inside(image, &agent);
    }
    if (code == 0 && options->int3) {
      struct ct_signal_action traps = {image->place.base + agent.trap,
                                       SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTORER, image->place.restorer, 0};
      code = ct_signal_set(remote, image->place.scratch, SIGTRAP, &traps);
    }
    if (code == 0 && !options->no_crash) {
      code = ct_signals_take(remote, &image->place, options->int3, false);
    }
    if (code != 0) {
      ct_fail(diag, code, "cannot place the agent in the process: %s (a limit on address space?)", ct_err_text(code));
    }
  }
  if (code != 0) {
    take_out(remote, &image->place, image->ring_bytes);
    ct_image_free(image);
    return code;
  }
  return 0;
}

/* Visitors of the process wait in their pages, which are their stacks. */
static int
take_visitors_along(const struct ct_remote *remote, const struct ct_ring_header *old, struct ct_image *image,
                    uint32_t own_pid)
{
  for (uint32_t i = 0; i < CT_VISITOR_COUNT; i++) {
    uint64_t at = image->place.ring + old->visitors_offset + (uint64_t)i * CT_VISITOR_BYTES;
    struct ct_visitor *ours =
        (struct ct_visitor *)((uint8_t *)image->ring + image->ring->visitors_offset + (size_t)i * CT_VISITOR_BYTES);
    struct ct_visitor visitor;
    int code = ct_process_read(remote->process, at, &visitor, sizeof(visitor));
    if (code == 0 && visitor.owner >> 32 == own_pid) {
      code = ct_process_read(remote->process, at, ours, CT_VISITOR_BYTES);
      ours->state = CT_VISIT_DONE;
    }
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

/* The child's part of the configuration. */
static int
become_own(const struct ct_process *process, const struct ct_agent_place *place, uint32_t own_pid)
{
  static const uint32_t unlocked = 0;
  int code =
      ct_process_write(process, place->config + offsetof(struct ct_agent_config, pid), &own_pid, sizeof(own_pid));
  if (code == 0) {
    code = ct_process_write(process, place->config + offsetof(struct ct_agent_config, stack_lock), &unlocked,
                            sizeof(unlocked));
  }
  return code == 0 ? mark_own(process, place) : code;
}

int
ct_image_adopt(const struct ct_remote *remote, const struct ct_image_options *options, uint32_t own_pid,
               struct ct_image *image, struct ct_diag *diag)
{
  struct ct_ring_header *old = malloc(sizeof(*old));
  struct ct_image_options fitting = *options;
  uint64_t ring = image->place.ring, at = 0;
  int64_t fd, ignored;
  if (old == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  image->ring = NULL;
  int code = ct_process_read(remote->process, ring, old, sizeof(*old));
  if (code != 0 || old->magic != CT_RING_MAGIC || old->visitors_offset == 0) {
    free(old);
    return ct_fail(diag, CT_EFORMAT, "process %d has no ring", (int)remote->process->pid);
  }
  uint64_t most = (uint64_t)old->segment_count * CT_SEGMENT_BYTES;
  fitting.ring_bytes = fitting.ring_bytes < most ? fitting.ring_bytes : most;
  static const char name[] = CT_RING_NAME;
  code = ct_process_write(remote->process, image->place.scratch, name, sizeof(name));
  code = code == 0 ? create_memfd(remote, image->place.scratch, &fd, diag) : code;
  if (code == 0) {
    code = map_ring_here(remote, (int)fd, &fitting, image, diag);
    if (code == 0) {
      align_segments(image->ring, ring);
      image->ring->target_pid = own_pid;
      image->ring->inside = old->inside;
      image->ring->inside.controller_start = ct_process_start_time(getpid());
      code = take_visitors_along(remote, old, image, own_pid);
    }
    if (code == 0) {
      code = remote_mmap(remote, ring, image->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)fd, &at);
    }
    close_memfd(remote, fd);
  }
  if (code == 0 && old->total_bytes > image->ring_bytes) {
    uint64_t args[6] = {ring + image->ring_bytes, old->total_bytes - image->ring_bytes};
    code = remote->syscall(remote->context, SYS_munmap, args, &ignored);
  }
  if (code == 0) {
    code = become_own(remote->process, &image->place, own_pid);
  }
  free(old);
  if (code != 0) {
    if (image->ring != NULL) {
      munmap(image->ring, image->ring_bytes);
      image->ring = NULL;
    }
    return diag != NULL && diag->text[0] != '\0' ? code
                                                 : ct_fail(diag, code, "cannot give process %d a ring of its own: %s",
                                                           (int)remote->process->pid, ct_err_text(code));
  }
  return 0;
}

void
ct_image_free(struct ct_image *image)
{
  if (image->ring != NULL) {
    munmap(image->ring, image->ring_bytes);
    image->ring = NULL;
  }
  ct_agent_place_free(&image->place);
}
