/* SPDX-License-Identifier: MIT */
/*
 * Building the inside of a target from outside; see image.h. All mappings are made by system calls in the
 * target's name:
 *   ring      memfd, shared: header, tids, slots, segment table, segments
 *   agent     the flat image, private: code read-only, then its data
 *   controls  one control page and agent stack per slot, private, unreserved, wiped on fork
 *   table     one byte per 64 KiB of address space, private, unreserved; only we write it, from outside, so that it
 *             does not count as the program's data (RLIMIT_DATA)
 *   stacks    the map of stacks and return stores, private, unreserved; stores are mapped by the agent
 */
#include "record/injected.h"

#include "agent/image.h"
#include "hook/signals.h"
#include "process/shared_memory.h"
#include "ring/counters.h"
#include "ring/stacks.h"
#include "x86/trampoline.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const uint8_t ct_agent_blob[];
extern const uint8_t ct_agent_blob_end[];

/*
 * D. -2^45 fits the usual and the legacy layout (docs/architecture.md). The rest keeps a return-address slot and its
 * entry in the store, which are written one after the other at each call, out of each other's way: AMD's way prediction
 * goes by bits 12 to 27 of an address within the set that bits 6 to 11 tell, and Intel's loads wait for stores with the
 * same low 12 bits. 2 KiB within the page keep the locals of frames apart from the store as well.
 */
#define STORE_APART 0x1840ll
#define STORE_DELTA (-(1ll << 45) + STORE_APART)
static_assert(STORE_APART % 64 == 0, "a return-address slot that lies in one cache line has its store in one");
static_assert((STORE_APART & 0xfff) != 0 && (STORE_APART & 0xffff000) != 0,
              "neither the low bits nor the page's agree");
/*
 * Where our own mappings go: BASE_BELOW below where the kernel puts what asks for no address, and in which order. Far
 * enough that libraries find their usual addresses; near enough that, as with those, no program can count on an address
 * there: where that is differs from run to run. It is above all that sanitizers take for their shadows. In the legacy
 * layout mappings grow upwards, and ours are at the end.
 */
#define BASE_BELOW          (16ull << 30)
#define BASE_ALIGN          (1ull << 30)
#define BASE_USUAL          (1ull << 46) /* what the kernel chooses in the usual layout lies above */
#define BASE_LEGACY         0x7e9000000000ull
#define RING_AT             0x0ull
#define RING_COUNTED_AT     0x100000000ull /* with counters it is larger than the room before the agent */
#define AGENT_AT            0x40000000ull
#define CONTROLS_AT         0x50000000ull
#define STACKS_AT           0x60000000ull
#define TABLE_AT            0x80000000ull
#define STACK_UNLIMITED     (1ull << 30) /* how much of an unlimited stack gets a store at first */
#define HWCAP2_HAS_FSGSBASE (1u << 1)
#define UNWIND_BYTES        512

static int
remote_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  return ct_process_syscall(context, number, args, result);
}

struct ct_remote
ct_injected_remote(struct ct_process *process)
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
  /* A core dump is to be that of the program. */
  uint64_t advice[6] = {(uint64_t)got, size, MADV_DONTDUMP};
  return remote->syscall(remote->context, SYS_madvise, advice, &got);
}

/* One of our own, announced before it is there (see ct_near_announce) if it can be had at its usual address. */
static int
map_own(const struct ct_remote *remote, struct ct_injected *image, uint64_t hint, uint64_t size, int prot, int flags,
        uint64_t *result)
{
  struct ct_pending *pending = &image->ring->inside.pending[CT_PENDING_OTHER];
  *pending = (struct ct_pending){hint, size};
  flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  int code = remote_mmap(remote, hint, size, prot, flags | MAP_FIXED_NOREPLACE, -1, result);
  if (code == CT_ENOMEM) {
    *pending = (struct ct_pending){0, 0};
    code = remote_mmap(remote, hint, size, prot, flags, -1, result);
  }
  return code;
}

static uint64_t
page_up(uint64_t value)
{
  return (value + CT_PAGE_BYTES - 1) & ~(uint64_t)(CT_PAGE_BYTES - 1);
}

/* Fills in a fresh, zeroed header. */
static void
lay_out_ring(struct ct_ring_header *ring, uint32_t segments, const struct ct_injected_options *options,
             uint32_t counter_blocks, int pid)
{
  uint64_t details = options->detail_bytes / CT_SEGMENT_BYTES;
  details = details > CT_DETAIL_SEGMENT_MAX ? CT_DETAIL_SEGMENT_MAX : details;
  ring->version = CT_RING_VERSION;
  ring->target_pid = (uint32_t)pid;
  ring->slot_count = CT_SLOT_COUNT;
  ring->segment_count = segments;
  ring->tids_offset = CT_PAGE_BYTES;
  ring->handshakes_offset = CT_HANDSHAKES_OFFSET;
  ring->slots_offset = ring->handshakes_offset + CT_HANDSHAKE_COUNT * CT_HANDSHAKE_BYTES;
  ring->table_offset = page_up(ring->slots_offset + CT_SLOT_COUNT * sizeof(struct ct_slot));
  ring->crash_offset = page_up(ring->table_offset + (segments + details) * sizeof(struct ct_segment_entry));
  ring->capture_offset = ring->crash_offset + page_up(sizeof(struct ct_crash));
  ring->segments_offset = ring->capture_offset + CT_PAGE_BYTES + CT_CAPTURE_PIECES * CT_CAPTURE_BYTES;
  /* Room to move the first segment to an address in the target that has CT_CURSOR_VALID. */
  ring->total_bytes = ring->segments_offset + (segments + details + 1) * CT_SEGMENT_STRIDE;
  if (options->has_gates) {
    ring->counters_offset = page_up(ring->total_bytes);
    ring->total_bytes = ring->counters_offset + (uint64_t)CT_SLOT_COUNT * counter_blocks * CT_COUNTERS_BLOCK_BYTES;
  }
  ring->lossless = options->lossless;
  ring->detail_count = (uint32_t)details;
  ring->detail_waits = options->detail_always;
  ring->controller_pid = (uint32_t)getpid();
  ring->inside.controller_start = ct_process_start_time(getpid());
  for (uint32_t i = 0; i < segments; i++) {
    ring->free_map[i / 64] |= 1ull << (i % 64);
  }
  for (uint32_t i = 0; i < details; i++) {
    ring->detail_free_map[i / 64] |= 1ull << (i % 64);
  }
  ring->magic = CT_RING_MAGIC;
}

/* From the layout that nobody else has seen yet. */
static void
find_parts(struct ct_injected *image, const struct ct_ring_header *ring_layout)
{
  uint8_t *base = (uint8_t *)image->ring;
  image->parts = (struct ct_ring_parts){
      .header = image->ring,
      .tids = (uint32_t *)(base + ring_layout->tids_offset),
      .slots = (struct ct_slot *)(base + ring_layout->slots_offset),
      .entries = (struct ct_segment_entry *)(base + ring_layout->table_offset),
      .segments = base + ring_layout->segments_offset,
      .crash = (struct ct_crash *)(base + ring_layout->crash_offset),
      .handshakes = base + ring_layout->handshakes_offset,
      .captures = (struct ct_capture_pool *)(base + ring_layout->capture_offset),
      .bytes = ring_layout->total_bytes,
      .tids_offset = ring_layout->tids_offset,
      .handshakes_offset = ring_layout->handshakes_offset,
      .segments_offset = ring_layout->segments_offset,
      .counters = ring_layout->counters_offset != 0 ? base + ring_layout->counters_offset : NULL,
      .counters_offset = ring_layout->counters_offset,
      .counter_blocks = image->layout.counter_blocks,
      .segment_count = ring_layout->segment_count,
      .detail_count = ring_layout->detail_count,
  };
}

/* Moves the segments to where their addresses in the target have CT_CURSOR_VALID. address: of the ring in the target.
 */
static void
align_segments(struct ct_injected *image, uint64_t address)
{
  uint64_t at = (address + image->parts.segments_offset) % CT_SEGMENT_STRIDE;
  uint64_t step = (CT_CURSOR_VALID - at) % CT_SEGMENT_STRIDE;
  image->parts.segments_offset += step;
  image->parts.segments += step;
  image->ring->segments_offset = image->parts.segments_offset;
}

/* Maps the memfd that the target has as fd, here. */
static int
map_ring_here(const struct ct_remote *remote, int fd, const struct ct_injected_options *options,
              struct ct_injected *image, struct ct_diag *diag)
{
  uint32_t segments = (uint32_t)(options->ring_bytes / CT_SEGMENT_BYTES);
  segments = segments < 16 ? 16 : segments > CT_SEGMENT_MAX ? CT_SEGMENT_MAX : segments;
  struct ct_ring_header ring_layout;
  memset(&ring_layout, 0, sizeof(ring_layout));
  lay_out_ring(&ring_layout, segments, options, image->layout.counter_blocks, remote->process->own_pid);
  void *mapping = NULL;
  int file = -1;
  int code = ct_process_map_memfd(remote->process, fd, ring_layout.total_bytes, &mapping,
                                  options->has_gates ? &file : NULL, diag);
  if (code != 0) {
    return code;
  }
  image->ring = mapping;
  image->ring_bytes = ring_layout.total_bytes;
  find_parts(image, &ring_layout);
  image->parts.fd = file;
  memcpy(mapping, &ring_layout, sizeof(ring_layout));
  for (uint32_t i = 0; i < CT_SLOT_COUNT; i++) {
    image->parts.slots[i].active_segment = image->parts.slots[i].detail_segment = CT_SEGMENT_NONE;
  }
  return 0;
}

/* Makes the memfd in the target and closes it when done. The target makes it, we take it through /proc: that works
 * whatever the target may open. */
static int
create_memfd(const struct ct_remote *remote, uint64_t name, int64_t *fd, struct ct_diag *diag)
{
  uint64_t args[6] = {name, MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0};
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
create_ring(const struct ct_remote *remote, const struct ct_injected_options *options, struct ct_injected *image,
            struct ct_diag *diag)
{
  int64_t fd;
  int code = create_memfd(remote, ct_process_injection_name(remote->process), &fd, diag);
  if (code != 0) {
    return code;
  }
  code = map_ring_here(remote, (int)fd, options, image, diag);
  if (code == 0) {
    uint64_t at = image->at + (options->has_gates ? RING_COUNTED_AT : RING_AT);
    code = remote_mmap(remote, at, image->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, &image->layout.ring);
    align_segments(image, image->layout.ring);
    code = code == 0 ? 0 : ct_fail(diag, code, "the process cannot map the ring (a limit on address space?)");
  }
  close_memfd(remote, fd);
  return code;
}

/* How many blocks of counters a thread has. They are address space: where that is limited there are fewer. */
static uint32_t
choose_counter_blocks(pid_t pid)
{
  struct rlimit limit;
  bool is_free = prlimit(pid, RLIMIT_AS, NULL, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
  return is_free ? CT_COUNTERS_BLOCKS : CT_COUNTERS_BLOCKS_FEW;
}

/* Where our own mappings are to lie. */
static uint64_t
choose_base(const struct ct_remote *remote)
{
  uint64_t at = 0;
  int64_t ignored;
  if (remote_mmap(remote, 0, CT_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, &at) != 0) {
    return BASE_LEGACY;
  }
  uint64_t args[6] = {at, CT_PAGE_BYTES};
  remote->syscall(remote->context, SYS_munmap, args, &ignored);
  return at < BASE_USUAL ? BASE_LEGACY : (at - BASE_BELOW) & ~(BASE_ALIGN - 1);
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

/* The main stack, as far down as it may grow. The agent maps its store when it comes there, as that of any other. */
static int
find_first_stack(const struct ct_remote *remote, uint64_t sp, const struct ct_injected_options *options,
                 struct ct_stack_range *range, struct ct_diag *diag)
{
  uint64_t lo, hi, below;
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
  *range = (struct ct_stack_range){.lo = room < lo ? room : lo, .hi = hi};
  return 0;
}

static int
place_agent(const struct ct_remote *remote, struct ct_injected *image, struct ct_agent_image *agent)
{
  struct ct_agent_layout *layout = &image->layout;
  memcpy(agent, ct_agent_blob, sizeof(*agent));
  size_t file_bytes = (size_t)(ct_agent_blob_end - ct_agent_blob);
  if (agent->magic != CT_AGENT_MAGIC || agent->memory_bytes < file_bytes) {
    return CT_EFORMAT;
  }
  uint64_t total = page_up(agent->memory_bytes) + CT_PAGE_BYTES; /* the last page: unwind templates */
  /* Executable first: a process that denies itself memory to write and execute (PR_SET_MDWE) gets none later. */
  int code = map_own(remote, image, image->at + AGENT_AT, total, PROT_READ | PROT_EXEC, 0, &layout->base);
  if (code != 0) {
    return code;
  }
  image->ring->inside.agent_bytes = total;
  image->ring->inside.agent = layout->base;
  code = ct_process_write(remote->process, layout->base, ct_agent_blob, file_bytes);
  layout->bytes = total;
  uint64_t args[6] = {layout->base + agent->data_start, total - agent->data_start, PROT_READ | PROT_WRITE};
  int64_t result = -1;
  if (code == 0) {
    code = remote->syscall(remote->context, SYS_mprotect, args, &result);
  }
  if (code == 0 && result != 0) {
    code = CT_EACCES;
  }
  layout->crash = layout->base + agent->crash;
  layout->restorer = layout->base + agent->restorer;
  layout->scratch = layout->base + total - CT_SIGNAL_SCRATCH_BYTES;
  layout->config = layout->base + agent->config;
  layout->page_off = layout->base + agent->page_off;
  layout->page_lookup = layout->base + agent->page_lookup;
  layout->head = (struct ct_region_head){.slow_enter = layout->base + agent->slow_enter,
                                         .slow_return = layout->base + agent->slow_return,
                                         .not_module = layout->base + agent->not_module,
                                         .restore_ra_slot = layout->base + agent->restore_ra_slot,
                                         .restore_passthrough = layout->base + agent->restore_passthrough,
                                         .sample_due = layout->base + agent->sample_due,
                                         .detail_full = layout->base + agent->detail_full,
                                         .detail_tail = layout->base + agent->detail_tail,
                                         .detail_texts = layout->base + agent->detail_texts,
#define X(name) .callout_##name = layout->base + agent->callout_##name,
                                         CT_CALLOUT_ENTRIES(X)
#undef X
  };
  return code;
}

/* A forked child finds 0 there. */
static int
mark_own(const struct ct_process *process, const struct ct_agent_layout *layout)
{
  static const uint64_t own = 1;
  return ct_process_write(process, layout->controls + CT_CONTROL_OWN, &own, sizeof(own));
}

static int
place_controls(const struct ct_remote *remote, struct ct_injected *image)
{
  struct ct_agent_layout *layout = &image->layout;
  uint64_t size = (uint64_t)CT_SLOT_COUNT * CT_CONTROL_STRIDE;
  int code =
      map_own(remote, image, image->at + CONTROLS_AT, size, PROT_READ | PROT_WRITE, MAP_NORESERVE, &layout->controls);
  if (code != 0) {
    return code;
  }
  image->ring->inside.controls_bytes = size;
  image->ring->inside.controls = layout->controls;
  uint64_t args[6] = {layout->controls, size, MADV_WIPEONFORK};
  int64_t result = -1;
  if ((code = remote->syscall(remote->context, SYS_madvise, args, &result)) != 0) {
    return code;
  }
  if (result != 0) {
    return CT_EUNSUPPORTED; /* Linux before 4.14 */
  }
  code = map_own(remote, image, image->at + TABLE_AT, CT_TABLE_BYTES, PROT_READ, MAP_NORESERVE, &layout->table);
  if (code != 0) {
    return code;
  }
  image->ring->inside.table_bytes = CT_TABLE_BYTES;
  image->ring->inside.table = layout->table;
  code = map_own(remote, image, image->at + STACKS_AT, sizeof(struct ct_stack_map), PROT_READ | PROT_WRITE,
                 MAP_NORESERVE, &layout->stacks);
  if (code != 0) {
    return code;
  }
  image->ring->inside.stacks_bytes = sizeof(struct ct_stack_map);
  image->ring->inside.stacks = layout->stacks;
  /* What the agent calls back is called from a module: it looks at no return-address slot of its own. */
  static const uint8_t module = CT_TEXT_MODULE;
  code = ct_process_write(remote->process, layout->table + (layout->base >> CT_TABLE_SHIFT), &module, sizeof(module));
  return code == 0 ? mark_own(remote->process, layout) : code;
}

static int
configure(const struct ct_process *process, struct ct_injected *image, const struct ct_agent_image *agent,
          const struct ct_injected_options *options, const struct ct_stack_range *stack)
{
  struct ct_agent_layout *layout = &image->layout;
  struct ct_agent_config *config = calloc(1, sizeof(*config)); /* large */
  uint8_t unwind[UNWIND_BYTES];
  uint64_t unwind_at = layout->base + page_up(agent->memory_bytes);
  if (config == NULL) {
    return CT_ENOMEM;
  }
  config->ring = layout->ring;
  config->tids = layout->ring + image->parts.tids_offset;
  config->controls = layout->controls;
  config->table = layout->table;
  config->store_delta = layout->store_delta;
  config->no_stores = options->no_stores;
  config->pid = (uint32_t)process->own_pid;
  config->have_wrgsbase = (getauxval(AT_HWCAP2) & HWCAP2_HAS_FSGSBASE) != 0;
  config->page_off = layout->page_off;
  config->page_lookup = layout->page_lookup;
  config->signal_mask = ~0ull;
  config->handshakes = options->follow ? layout->ring + image->parts.handshakes_offset : 0;
  config->stacks = layout->stacks;
  config->main_stack = *stack;
  config->task_share = options->task_share;
  config->tasks_raised = options->tasks_raised;
  config->task_limit = options->task_limit;
  config->counters = image->parts.counters_offset != 0 ? layout->ring + image->parts.counters_offset : 0;
  config->counters_stride = (uint64_t)layout->counter_blocks * CT_COUNTERS_BLOCK_BYTES;
  struct ct_trampoline_rows rows;
  size_t bytes = ct_trampoline_unwind(layout->store_delta, layout->detail, unwind, sizeof(unwind), unwind_at, &rows);
  if (bytes == 0) {
    free(config);
    return CT_ERANGE;
  }
  config->fde_full = rows.full;
  config->fde_values = rows.values;
  config->fde_detail = rows.detail;
  config->fde_enter = rows.enter;
  int code = ct_process_write(process, unwind_at, unwind, bytes);
  if (code == 0) {
    code = ct_process_write(process, layout->config, config, sizeof(*config));
  }
  free(config);
  return code;
}

/* What was mapped of an image that did not come to be. */
static void
take_out(const struct ct_remote *remote, const struct ct_agent_layout *layout, uint64_t ring_bytes)
{
  const uint64_t parts[][2] = {{layout->ring, ring_bytes},
                               {layout->base, layout->bytes},
                               {layout->controls, (uint64_t)CT_SLOT_COUNT * CT_CONTROL_STRIDE},
                               {layout->table, CT_TABLE_BYTES},
                               {layout->stacks, sizeof(struct ct_stack_map)}};
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
publish_inside(struct ct_injected *image, const struct ct_agent_image *agent)
{
  struct ct_inside *inside = &image->ring->inside;
  inside->back = image->layout.base + agent->watch_back;
  inside->config = image->layout.config;
  inside->pending[CT_PENDING_REGION] = inside->pending[CT_PENDING_OTHER] = (struct ct_pending){0, 0};
}

int64_t
ct_injected_store_delta(void)
{
  return STORE_DELTA;
}

/* Everything that the agent needs besides its image. */
static int
furnish(const struct ct_remote *remote, struct ct_injected *image, const struct ct_agent_image *agent,
        const struct ct_injected_options *options, const struct ct_stack_range *stack)
{
  int code = place_controls(remote, image);
  if (code != 0 || (code = configure(remote->process, image, agent, options, stack)) != 0) {
    return code;
  }
  publish_inside(image, agent);
  if (options->int3) {
    struct ct_signal_action traps = {image->layout.base + agent->trap,
                                     SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTORER, image->layout.restorer, 0};
    code = ct_signal_set(remote, image->layout.scratch, SIGTRAP, &traps);
  }
  return code == 0 && !options->no_crash ? ct_signals_take(remote, &image->layout, options->int3, false) : code;
}

int
ct_injected_create(const struct ct_remote *remote, uint64_t sp, const struct ct_injected_options *options,
                   struct ct_injected *image, struct ct_diag *diag)
{
  struct ct_agent_image agent;
  struct ct_stack_range stack;
  memset(image, 0, sizeof(*image));
  image->layout.store_delta = STORE_DELTA;
  image->layout.detail = options->detail;
  image->layout.has_gates = options->has_gates;
  image->layout.first_counted = options->first_counted;
  image->layout.counter_blocks = options->has_gates ? choose_counter_blocks(remote->process->pid) : 0;
  image->at = choose_base(remote);
  int code = create_ring(remote, options, image, diag);
  if (code != 0) {
    goto take_out;
  }
  code = place_agent(remote, image, &agent);
  if (code != 0) {
    ct_fail(diag, code, "cannot place the agent in the process: %s (a limit on address space?)", ct_err_text(code));
    goto take_out;
  }
  code = find_first_stack(remote, sp, options, &stack, diag);
  if (code != 0) {
    goto take_out;
  }
  code = furnish(remote, image, &agent, options, &stack);
  if (code != 0) {
    ct_fail(diag, code, "cannot place the agent in the process: %s (a limit on address space?)", ct_err_text(code));
    goto take_out;
  }
  return 0;
take_out:
  take_out(remote, &image->layout, image->ring_bytes);
  ct_injected_free(image);
  return code;
}

/* Children wait in their handshake pages, which are their stacks. page: it has that one, 0: it is not known. */
static int
carry_over_handshakes(const struct ct_remote *remote, struct ct_injected *image, uint64_t page)
{
  for (uint32_t i = 0; i < CT_HANDSHAKE_COUNT; i++) {
    uint64_t at = image->layout.ring + CT_HANDSHAKES_OFFSET + (uint64_t)i * CT_HANDSHAKE_BYTES;
    struct ct_handshake *ours = ct_ring_handshake(&image->parts, i);
    struct ct_handshake handshake;
    int code = ct_process_read(remote->process, at, &handshake, sizeof(handshake));
    if (code == 0 && (page != 0 ? at == page : handshake.owner >> 32 == (uint32_t)remote->process->own_pid)) {
      code = ct_process_read(remote->process, at, ours, CT_HANDSHAKE_BYTES);
      ours->state = CT_HANDSHAKE_DONE;
    }
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

/* The child's part of the configuration. */
static int
become_own(const struct ct_process *process, const struct ct_injected *image)
{
  const struct ct_agent_layout *layout = &image->layout;
  uint64_t counters = image->parts.counters_offset != 0 ? layout->ring + image->parts.counters_offset : 0;
  uint32_t own_pid = (uint32_t)process->own_pid;
  static const uint32_t unlocked = 0;
  int code =
      ct_process_write(process, layout->config + offsetof(struct ct_agent_config, pid), &own_pid, sizeof(own_pid));
  if (code != 0 ||
      (code = ct_process_write(process, layout->config + offsetof(struct ct_agent_config, stack_lock), &unlocked,
                               sizeof(unlocked))) != 0 ||
      (code = ct_process_write(process, layout->config + offsetof(struct ct_agent_config, counters), &counters,
                               sizeof(counters))) != 0) {
    return code;
  }
  return mark_own(process, layout);
}

/* The new ring, fd in the target, is mapped here and there; not yet the target's own. */
static int
replace_ring(const struct ct_remote *remote, int fd, const struct ct_ring_header *old,
             const struct ct_injected_options *fitting, uint64_t page, struct ct_injected *image, struct ct_diag *diag)
{
  uint64_t ring = image->layout.ring, at = 0;
  int64_t ignored;
  int code = map_ring_here(remote, fd, fitting, image, diag);
  if (code != 0) {
    return code;
  }
  align_segments(image, ring);
  image->ring->inside = old->inside;
  image->ring->inside.controller_start = ct_process_start_time(getpid());
  if ((code = carry_over_handshakes(remote, image, page)) != 0 ||
      (code = remote_mmap(remote, ring, image->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, &at)) !=
          0) {
    return code;
  }
  if (old->total_bytes > image->ring_bytes) {
    uint64_t args[6] = {ring + image->ring_bytes, old->total_bytes - image->ring_bytes};
    code = remote->syscall(remote->context, SYS_munmap, args, &ignored);
  }
  return code;
}

static void
unmap_ring(struct ct_injected *image)
{
  if (image->ring != NULL) {
    munmap(image->ring, image->ring_bytes);
    image->ring = NULL;
    if (image->parts.fd >= 0) {
      close(image->parts.fd);
    }
    image->parts.fd = -1;
  }
}

/* The ring of a size that the old one's addresses have room for, in a file of its own. */
static int
make_own_ring(const struct ct_remote *remote, const struct ct_injected_options *options, uint64_t page,
              struct ct_ring_header *old, struct ct_injected *image, struct ct_diag *diag)
{
  struct ct_injected_options fitting = *options;
  int64_t fd;
  uint64_t most = (uint64_t)old->segment_count * CT_SEGMENT_BYTES;
  fitting.ring_bytes = fitting.ring_bytes < most ? fitting.ring_bytes : most;
  most = (uint64_t)old->detail_count * CT_SEGMENT_BYTES;
  fitting.detail_bytes = fitting.detail_bytes < most ? fitting.detail_bytes : most;
  static const char name[] = CT_RING_NAME;
  int code = ct_process_write(remote->process, image->layout.scratch, name, sizeof(name));
  if (code != 0) {
    return code;
  }
  code = create_memfd(remote, image->layout.scratch, &fd, diag);
  if (code != 0) {
    return code;
  }
  code = replace_ring(remote, (int)fd, old, &fitting, page, image, diag);
  close_memfd(remote, fd);
  return code == 0 ? become_own(remote->process, image) : code;
}

int
ct_injected_adopt(const struct ct_remote *remote, const struct ct_injected_options *options, uint64_t page,
                  struct ct_injected *image, struct ct_diag *diag)
{
  struct ct_ring_header *old = malloc(sizeof(*old));
  if (old == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  image->ring = NULL;
  int code = ct_process_read(remote->process, image->layout.ring, old, sizeof(*old));
  if (code != 0 || old->magic != CT_RING_MAGIC || old->handshakes_offset == 0) {
    free(old);
    return ct_fail(diag, CT_EFORMAT, "process %d has no ring", (int)remote->process->pid);
  }
  code = make_own_ring(remote, options, page, old, image, diag);
  free(old);
  if (code != 0) {
    unmap_ring(image);
    return diag != NULL && diag->text[0] != '\0' ? code
                                                 : ct_fail(diag, code, "cannot give process %d a ring of its own: %s",
                                                           (int)remote->process->pid, ct_err_text(code));
  }
  return 0;
}

void
ct_injected_free(struct ct_injected *image)
{
  unmap_ring(image);
  ct_agent_layout_free(&image->layout);
}
