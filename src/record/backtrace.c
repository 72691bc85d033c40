/* SPDX-License-Identifier: MIT */
/* See backtrace.h. */
#include "record/backtrace.h"

#include "base/clock.h"
#include "base/file.h"
#include "target/debuginfo.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#define RESTARTS_MAX   16
#define PREPARE_NS_MAX 2000000000ull /* how long files are opened beforehand */
#define DEBUG_ROOT     "/usr/lib/debug"
#define VDSO           "[vdso]" /* as the kernel calls it */
#define VDSO_BYTES_MAX 65536
#define MODULES_MAX    16384        /* libdwfl looks through all for each */
#define COPIES_MAX     (2ull << 30) /* bytes of files that others may write to */
/* Below the target's stack pointer, as agent/entry.S keeps things; and at the top of the agent's own stack. */
#define KEPT_DESC  120
#define KEPT_HALF  96
#define KEPT_RBX   80
#define HALF_LEAVE 1
/* The words at the top of the agent's own stack: r15 down to r12, rbp, what the stub needs, the slot. */
enum { TOP_R15, TOP_RBP = 4, TOP_SLOT = 6, TOP_WORDS };
/* A full trampoline's last instructions in front of its call have popped the return address already. */
#define POPPED_BYTES  10
#define HANDLER_BYTES 2048 /* what a handler of the agent has on the stack at most */

struct ct_backtracer {
  const struct ct_process *process;
  const struct ct_agent_layout *layout;
  struct ct_region *regions;
  size_t region_count;
  Dwfl *dwfl;
  struct ct_mappings mappings;      /* when it was opened */
  char *vdso;                       /* a copy, NULL: it was not needed */
  uint64_t copies_room;             /* of COPIES_MAX */
  const struct ct_stack_copy *copy; /* NULL: the stack is as it is in the process */
  struct ct_registers start;        /* for the unwinding that goes on */
  struct ct_stack_frame *frames;
  size_t count, max;
  int result;      /* of the last peek: less than 0: it found no further */
  bool again;      /* it stopped in a trampoline or the agent: start has the registers there */
  bool after_call; /* start's pc is a return address */
  bool is_first;   /* the next frame is the one that start is of ... */
  bool is_shown;   /* ... which has been added */
  bool has_no_rbx; /* the last frame, whose registers start has */
  uint64_t rbx;    /* in the last frame that has one */
};

static bool
read_word(const struct ct_backtracer *tracer, uint64_t address, uint64_t *word)
{
  const struct ct_stack_copy *copy = tracer->copy;
  if (copy != NULL && address >= copy->start && address < copy->end) {
    uint64_t offset = address - copy->start;
    if (offset + sizeof(*word) > copy->size) {
      return false;
    }
    memcpy(word, copy->bytes + offset, sizeof(*word));
    return true;
  }
  return ct_process_read(tracer->process, address, word, sizeof(*word)) == 0;
}

static const struct ct_region *
region_of(const struct ct_backtracer *tracer, uint64_t pc)
{
  for (size_t i = 0; i < tracer->region_count; i++) {
    const struct ct_region *region = &tracer->regions[i];
    if (pc >= region->lo && pc < region->hi && region->desc_count != 0) {
      return region;
    }
  }
  return NULL;
}

static bool
is_agent(const struct ct_backtracer *tracer, uint64_t pc)
{
  return tracer->layout != NULL && pc >= tracer->layout->base && pc < tracer->layout->base + tracer->layout->bytes;
}

/* The trampoline around pc. */
static bool
find_desc(const struct ct_backtracer *tracer, const struct ct_region *region, uint64_t pc, struct ct_hook_desc *desc)
{
  uint64_t low = 0, high = region->desc_count;
  while (low < high && high <= CT_FN_MAX) { /* the first that begins after pc */
    uint64_t middle = (low + high) / 2;
    if (ct_process_read(tracer->process, region->desc + middle * sizeof(*desc), desc, sizeof(*desc)) != 0) {
      return false;
    }
    if (desc->start <= pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low != 0 &&
         ct_process_read(tracer->process, region->desc + (low - 1) * sizeof(*desc), desc, sizeof(*desc)) == 0 &&
         desc->map_count <= sizeof(desc->map_new);
}

/* The word at address; where that is a return-address slot of a hooked frame, the true return address. */
static bool
read_true_word(const struct ct_backtracer *tracer, uint64_t address, uint64_t *word)
{
  struct ct_hook_desc desc;
  if (!read_word(tracer, address, word)) {
    return false;
  }
  const struct ct_region *region = region_of(tracer, *word);
  uint64_t kept;
  if (region != NULL && find_desc(tracer, region, *word, &desc) && desc.ret_point == *word &&
      read_word(tracer, address + (uint64_t)tracer->layout->store_delta, &kept)) {
    *word = kept;
  }
  return true;
}

/* ---- libdwfl's view of the process ---- */

static pid_t
no_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
  (void)dwfl;
  (void)arg;
  (void)thread_arg;
  return 0;
}

static bool
the_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
  (void)dwfl;
  (void)tid;
  *thread_arg = arg;
  return true;
}

static bool
read_for_dwfl(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *result, void *arg)
{
  (void)dwfl;
  uint64_t word;
  if (!read_true_word(arg, address, &word)) {
    return false;
  }
  *result = word;
  return true;
}

static bool
first_registers(Dwfl_Thread *thread, void *arg)
{
  const struct ct_backtracer *tracer = arg;
  Dwarf_Word values[CT_REGISTER_COUNT];
  for (int i = 0; i < CT_REGISTER_COUNT; i++) {
    values[i] = tracer->start.values[i];
  }
  values[CT_REGISTER_RIP] -= tracer->after_call; /* libdwfl takes it for where the thread is */
  return dwfl_thread_state_registers(thread, 0, CT_REGISTER_COUNT, values);
}

static bool
is_moderate(int fd, bool is_debug_file)
{
  struct ct_image image = {0};
  bool is = ct_image_map(&image, fd, "", NULL) == 0 && ct_image_is_moderate(&image, is_debug_file);
  ct_image_clear(&image);
  return is;
}

/*
 * Nobody else may change it while it is mapped, and what is no ELF file is not given to libdw, which would unpack it
 * however large that became; nor what others can write and would take libdw any time or memory. -1: it is not to be
 * had.
 */
static int
take_elf(uint64_t *room, int fd, bool is_debug_file)
{
  char magic[SELFMAG];
  struct stat file;
  bool may_change = fd >= 0 && fstat(fd, &file) == 0 && ct_file_may_change(&file);
  fd = fd >= 0 ? ct_file_keep_still(fd, room) : -1;
  if (fd >= 0 && (ct_read_at(fd, magic, SELFMAG, 0) != SELFMAG || memcmp(magic, ELFMAG, SELFMAG) != 0 ||
                  (may_change && !is_moderate(fd, is_debug_file)))) {
    close(fd);
    fd = -1;
  }
  return fd;
}

/*
 * As much of it as the kernel has mapped. The process may have written to its headers: libdwfl's own reader
 * (elf_from_remote_memory) believes what they say of where in its buffer the pieces belong.
 */
static Elf *
read_vdso(struct ct_backtracer *tracer, const struct ct_mapping *mapping)
{
  uint64_t bytes = mapping->end - mapping->start;
  if (tracer->vdso != NULL || bytes > VDSO_BYTES_MAX || (tracer->vdso = malloc(bytes)) == NULL ||
      ct_process_read(tracer->process, mapping->start, tracer->vdso, bytes) != 0) {
    return NULL;
  }
  return elf_memory(tracer->vdso, bytes);
}

/* The file of a module, which may be in another root. */
static int
find_file(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, char **path, Elf **elf)
{
  (void)module;
  struct ct_backtracer *tracer = *userdata;
  char found[PATH_MAX + 64];
  int fd = -1;
  *elf = NULL;
  *path = NULL;
  const struct ct_mapping *mapping = ct_mappings_at(&tracer->mappings, base);
  if (mapping == NULL || strcmp(mapping->path, name) != 0) {
    return -1;
  }
  if (strcmp(name, VDSO) == 0) {
    *elf = read_vdso(tracer, mapping);
  } else {
    fd = take_elf(&tracer->copies_room,
                  ct_process_open_mapped(tracer->process->pid, mapping, found, sizeof(found), NULL), false);
    *path = fd >= 0 ? strdup(found) : NULL;
  }
  return fd;
}

/* Separate debug files, where distributions put them; nothing is asked of the network. */
static int
find_debug_file(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, const char *file,
                const char *link, GElf_Word crc, char **path)
{
  (void)name;
  (void)base;
  (void)crc;
  struct ct_backtracer *tracer = *userdata;
  char text[4096];
  const unsigned char *id;
  GElf_Addr where;
  int bytes = dwfl_module_build_id(module, &id, &where);
  int fd = -1;
  if (bytes > 1 && bytes <= 64) {
    int length = snprintf(text, sizeof(text), DEBUG_ROOT "/.build-id/%02x/", id[0]);
    for (int i = 1; i < bytes; i++) {
      length += snprintf(text + length, sizeof(text) - (size_t)length, "%02x", id[i]);
    }
    snprintf(text + length, sizeof(text) - (size_t)length, ".debug");
    fd = take_elf(&tracer->copies_room, ct_open_regular(text), true);
  }
  const char *slash = file != NULL ? strrchr(file, '/') : NULL;
  if (fd < 0 && link != NULL && slash != NULL) {
    static const char *const folders[][2] = {{"", "/"}, {"", "/.debug/"}, {DEBUG_ROOT, "/"}};
    for (size_t i = 0; fd < 0 && i < sizeof(folders) / sizeof(folders[0]); i++) {
      int length =
          snprintf(text, sizeof(text), "%s%.*s%s%s", folders[i][0], (int)(slash - file), file, folders[i][1], link);
      fd = length < (int)sizeof(text) ? take_elf(&tracer->copies_room, ct_open_regular(text), true) : -1;
    }
  }
  *path = fd >= 0 ? strdup(text) : NULL;
  return fd;
}

/* ---- frames ---- */

static void
add_frame(struct ct_backtracer *tracer, uint64_t pc, uint64_t sp, bool exact)
{
  if (tracer->count < tracer->max) {
    tracer->frames[tracer->count++] = (struct ct_stack_frame){pc, sp, exact};
  }
}

static void
start_from(struct ct_backtracer *tracer, Dwfl_Frame *frame, uint64_t pc, bool exact)
{
  for (unsigned i = 0; i < CT_REGISTER_RIP; i++) {
    Dwarf_Word value;
    tracer->start.values[i] = dwfl_frame_reg(frame, i, &value) == 0 ? value : 0;
  }
  tracer->start.values[CT_REGISTER_RIP] = pc;
  tracer->after_call = !exact;
}

/*
 * libdw (0.188 at least) takes rbx for a register that a function need not keep for its caller: where its rules of the
 * ABI mean rbx they say register 0, which is rax. Where a module tells nothing of it, the frame further out has none,
 * and where that one's place is told by rbx (_dl_runtime_resolve_xsavec) the backtrace ended.
 */
static void
keep_rbx(struct ct_backtracer *tracer, Dwfl_Frame *frame, uint64_t pc, bool exact)
{
  Dwarf_Word rbx;
  tracer->has_no_rbx = dwfl_frame_reg(frame, CT_REGISTER_RBX, &rbx) != 0;
  if (!tracer->has_no_rbx) {
    tracer->rbx = rbx;
    return;
  }
  start_from(tracer, frame, pc, exact);
  tracer->start.values[CT_REGISTER_RBX] = tracer->rbx;
}

static int
on_frame(Dwfl_Frame *frame, void *arg)
{
  struct ct_backtracer *tracer = arg;
  Dwarf_Addr pc;
  Dwarf_Word sp;
  bool exact;
  if (!dwfl_frame_pc(frame, &pc, &exact)) {
    return DWARF_CB_ABORT;
  }
  if (tracer->is_first && tracer->after_call) {
    pc++;
    exact = false;
  }
  if (region_of(tracer, pc) != NULL || is_agent(tracer, pc)) {
    start_from(tracer, frame, pc, exact);
    tracer->again = true;
    return DWARF_CB_ABORT;
  }
  if (!tracer->is_first || !tracer->is_shown) {
    add_frame(tracer, pc, dwfl_frame_reg(frame, CT_REGISTER_RSP, &sp) == 0 ? sp : 0, exact);
  }
  tracer->is_first = false;
  keep_rbx(tracer, frame, pc, exact);
  return tracer->count < tracer->max ? DWARF_CB_OK : DWARF_CB_ABORT;
}

/* As if the function whose return-address slot is at sp had just returned. */
static bool
step_out(struct ct_backtracer *tracer, uint64_t ra_slot, bool kept)
{
  uint64_t pc;
  bool ok = kept ? read_word(tracer, ra_slot + (uint64_t)tracer->layout->store_delta, &pc)
                 : read_true_word(tracer, ra_slot, &pc);
  tracer->start.values[CT_REGISTER_RIP] = pc;
  tracer->start.values[CT_REGISTER_RSP] = ra_slot + 8;
  tracer->after_call = true;
  return ok;
}

static bool
enter_function(struct ct_backtracer *tracer, uint64_t function, uint64_t ra_slot)
{
  tracer->start.values[CT_REGISTER_RIP] = function;
  tracer->start.values[CT_REGISTER_RSP] = ra_slot;
  tracer->after_call = false;
  return true;
}

/* The thread stands in a trampoline: puts it where it would stand without. */
static bool
leave_trampoline(struct ct_backtracer *tracer, const struct ct_region *region)
{
  struct ct_hook_desc desc;
  uint64_t pc = tracer->start.values[CT_REGISTER_RIP], sp = tracer->start.values[CT_REGISTER_RSP], ra_slot;
  if (!find_desc(tracer, region, pc, &desc)) {
    return false;
  }
  if (pc >= desc.after_callout && pc < desc.relocated_end) {
    uint32_t k = 0;
    while (k + 1u < desc.map_count && desc.after_callout + desc.map_new[k + 1] <= pc) {
      k++;
    }
    return enter_function(tracer, desc.function + (desc.map_count != 0 ? desc.map_old[k] : 0), sp);
  }
  if (desc.mode != CT_HOOK_FULL || pc < desc.ret_point - POPPED_BYTES ||
      (pc >= desc.relocated && pc < desc.after_callout)) {
    return enter_function(tracer, desc.function, sp);
  }
  if (pc <= desc.ret_point) { /* rsp is the caller's */
    return step_out(tracer, sp - 8, true);
  }
  if (pc < desc.enter + desc.return_end) {
    return step_out(tracer, sp, true);
  }
  return read_word(tracer, sp, &ra_slot) && ra_slot == desc.ret_point ? step_out(tracer, sp, true)
                                                                      : enter_function(tracer, desc.function, sp);
}

/* The thread is in a handler of the agent's: back to where the signal came (kernel, struct rt_sigframe). */
static bool
leave_handler(struct ct_backtracer *tracer, uint64_t sp)
{
  static const uint8_t order[CT_REGISTER_COUNT] = {CT_CRASH_RAX,
                                                   CT_CRASH_RDX,
                                                   CT_CRASH_RCX,
                                                   CT_CRASH_RBX,
                                                   CT_CRASH_RSI,
                                                   CT_CRASH_RDI,
                                                   CT_CRASH_RBP,
                                                   CT_CRASH_RSP,
                                                   CT_CRASH_R8,
                                                   1,
                                                   2,
                                                   3,
                                                   4,
                                                   5,
                                                   6,
                                                   7,
                                                   CT_CRASH_RIP};
  uint64_t word, registers[CT_CRASH_REGISTERS];
  for (uint64_t at = sp; at < sp + HANDLER_BYTES && read_word(tracer, at, &word); at += 8) {
    uint64_t context = at + 8 + offsetof(ucontext_t, uc_mcontext) + offsetof(mcontext_t, gregs);
    if (word == tracer->layout->restorer &&
        ct_process_read(tracer->process, context, registers, sizeof(registers)) == 0) {
      for (int i = 0; i < CT_REGISTER_COUNT; i++) {
        tracer->start.values[i] = registers[order[i]];
      }
      tracer->after_call = false;
      return true;
    }
  }
  return step_out(tracer, sp, false);
}

/* The same in the agent, whose C code may have put anything in the registers that a function keeps for its caller. */
static bool
leave_agent(struct ct_backtracer *tracer)
{
  uint64_t *values = tracer->start.values, sp = values[CT_REGISTER_RSP], controls = tracer->layout->controls, at, half;
  uint64_t top[TOP_WORDS];
  struct ct_hook_desc desc;
  if (sp < controls || sp >= controls + (uint64_t)CT_SLOT_COUNT * CT_CONTROL_STRIDE) {
    return leave_handler(tracer, sp);
  }
  uint64_t end = controls + ((sp - controls) / CT_CONTROL_STRIDE + 1) * CT_CONTROL_STRIDE;
  if (ct_process_read(tracer->process, end - sizeof(top), top, sizeof(top)) != 0 ||
      !read_word(tracer, top[TOP_SLOT] - KEPT_DESC, &at) || !read_word(tracer, top[TOP_SLOT] - KEPT_HALF, &half) ||
      !read_word(tracer, top[TOP_SLOT] - KEPT_RBX, &values[CT_REGISTER_RBX]) ||
      ct_process_read(tracer->process, at, &desc, sizeof(desc)) != 0) {
    return false;
  }
  for (int i = TOP_R15; i < TOP_RBP; i++) {
    values[CT_REGISTER_R15 - i] = top[i];
  }
  values[CT_REGISTER_RBP] = top[TOP_RBP];
  return half == HALF_LEAVE ? step_out(tracer, top[TOP_SLOT], true)
                            : enter_function(tracer, desc.function, top[TOP_SLOT]);
}

/* Fills in the frames. Why there are no more of them, NULL: libdwfl knows that, or the last one is the outermost. */
static const char *
unwind(struct ct_backtracer *tracer)
{
  for (int turn = 0; turn < RESTARTS_MAX && tracer->count < tracer->max; turn++) {
    uint64_t pc = tracer->start.values[CT_REGISTER_RIP];
    const struct ct_region *region = region_of(tracer, pc);
    tracer->again = false;
    if (region != NULL || is_agent(tracer, pc)) {
      tracer->again = true;
      if (!(region != NULL ? leave_trampoline(tracer, region) : leave_agent(tracer))) {
        return "where it stands in contrail's own code is not known";
      }
    } else if (turn == 0 && dwfl_addrmodule(tracer->dwfl, pc) == NULL) {
      add_frame(tracer, pc, tracer->start.values[CT_REGISTER_RSP],
                true); /* a call to nowhere: the return address is on top of the stack */
      tracer->again = step_out(tracer, tracer->start.values[CT_REGISTER_RSP], false) &&
                      dwfl_addrmodule(tracer->dwfl, tracer->start.values[CT_REGISTER_RIP]) != NULL;
    } else {
      size_t count = tracer->count;
      tracer->is_first = true;
      tracer->has_no_rbx = false;
      tracer->result = dwfl_getthread_frames(tracer->dwfl, tracer->process->pid, on_frame, tracer);
      tracer->is_shown = !tracer->again && tracer->has_no_rbx && tracer->count > count;
      tracer->again |= tracer->is_shown;
    }
    if (!tracer->again) {
      return NULL;
    }
  }
  return tracer->count < tracer->max ? "the unwinding had to begin anew too often" : NULL;
}

size_t
ct_backtrace(struct ct_backtracer *tracer, const struct ct_registers *registers, const struct ct_stack_copy *copy,
             struct ct_stack_frame *frames, size_t max, const char **why)
{
  tracer->start = *registers;
  tracer->frames = frames;
  tracer->count = 0;
  tracer->max = max;
  tracer->copy = copy;
  tracer->result = 0;
  tracer->after_call = tracer->is_shown = false;
  const char *ends = unwind(tracer);
  tracer->copy = NULL;
  ends = ends == NULL && tracer->result < 0 ? dwfl_errmsg(-1) : ends;
  *why = tracer->count < max ? ends : NULL;
  return tracer->count;
}

static int
open_file(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, void *arg)
{
  (void)userdata;
  (void)name;
  (void)base;
  GElf_Addr bias;
  Dwarf_Addr cfi_bias;
  if (ct_now_ns() > *(const uint64_t *)arg) {
    return DWARF_CB_ABORT; /* the others are opened when a frame is in them */
  }
  if (dwfl_module_getelf(module, &bias) != NULL) {
    dwfl_module_eh_cfi(module, &cfi_bias);
  }
  return DWARF_CB_OK;
}

void
ct_backtracer_prepare(struct ct_backtracer *tracer)
{
  uint64_t deadline = ct_now_ns() + PREPARE_NS_MAX;
  dwfl_getmodules(tracer->dwfl, open_file, &deadline, 0);
}

const char *
ct_backtrace_module(struct ct_backtracer *tracer, uint64_t pc, uint64_t *address)
{
  Dwarf_Addr start = 0;
  Dwfl_Module *module = dwfl_addrmodule(tracer->dwfl, pc);
  const char *name = module == NULL ? NULL : dwfl_module_info(module, NULL, &start, NULL, NULL, NULL, NULL, NULL);
  *address = pc - start;
  return name;
}

const char *
ct_backtrace_line(struct ct_backtracer *tracer, uint64_t pc, int *line)
{
  Dwfl_Module *module = dwfl_addrmodule(tracer->dwfl, pc);
  Dwarf_Addr bias;
  ct_dwarf_hide_alternate(module != NULL ? dwarf_getelf(dwfl_module_getdwarf(module, &bias)) : NULL);
  Dwfl_Line *found = module == NULL ? NULL : dwfl_module_getsrc(module, pc);
  return found == NULL ? NULL : dwfl_lineinfo(found, NULL, line, NULL, NULL, NULL);
}

/* The agent's list of regions. */
static int
read_regions(struct ct_backtracer *tracer)
{
  uint64_t count = 0;
  if (tracer->layout == NULL) {
    return 0;
  }
  uint64_t config = tracer->layout->config;
  if (ct_process_read(tracer->process, config + offsetof(struct ct_agent_config, region_count), &count,
                      sizeof(count)) != 0 ||
      count > CT_REGION_MAX) {
    return CT_EIO;
  }
  tracer->regions = calloc(count + 1, sizeof(*tracer->regions));
  tracer->region_count = count;
  return tracer->regions == NULL ? CT_ENOMEM
                                 : ct_process_read(tracer->process, config + offsetof(struct ct_agent_config, regions),
                                                   tracer->regions, count * sizeof(*tracer->regions));
}

/* One module for mappings of the same file one after the other: as far as they reach from its first to its last. */
static int
report_modules(struct ct_backtracer *tracer)
{
  const struct ct_mappings *mappings = &tracer->mappings;
  size_t count = 0;
  for (size_t i = 0, next; i < mappings->count && count < MODULES_MAX; i = next) {
    const struct ct_mapping *first = &mappings->items[i];
    bool is_vdso = strcmp(first->path, VDSO) == 0, has_code = first->executable;
    uint64_t end = first->end;
    next = i + 1;
    if (!is_vdso && (first->path[0] != '/' || first->inode == 0)) {
      continue;
    }
    for (size_t k = next; !is_vdso && k < mappings->count; k++) {
      const struct ct_mapping *other = &mappings->items[k];
      if (other->inode == 0) {
        continue; /* what lies between */
      }
      if (other->inode != first->inode || other->device_major != first->device_major ||
          other->device_minor != first->device_minor) {
        break;
      }
      has_code |= other->executable;
      end = other->end;
      next = k + 1;
    }
    if (!has_code) {
      continue;
    }
    Dwfl_Module *module = dwfl_report_module(tracer->dwfl, first->path, first->start, end);
    void **userdata;
    if (module == NULL || dwfl_module_info(module, &userdata, NULL, NULL, NULL, NULL, NULL, NULL) == NULL) {
      return CT_EIO;
    }
    *userdata = tracer;
    count++;
  }
  return dwfl_report_end(tracer->dwfl, NULL, NULL) == 0 ? 0 : CT_EIO;
}

int
ct_backtracer_open(const struct ct_process *process, const struct ct_agent_layout *layout, struct ct_backtracer **out,
                   struct ct_diag *diag)
{
  static const Dwfl_Callbacks files = {.find_elf = find_file, .find_debuginfo = find_debug_file};
  static const Dwfl_Thread_Callbacks threads = {.next_thread = no_thread,
                                                .get_thread = the_thread,
                                                .memory_read = read_for_dwfl,
                                                .set_initial_registers = first_registers};
  struct ct_backtracer *tracer = calloc(1, sizeof(*tracer));
  if (tracer == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  tracer->process = process;
  tracer->layout = layout;
  tracer->copies_room = COPIES_MAX;
  int code = ct_process_mappings(process->pid, &tracer->mappings);
  code = code == 0 ? read_regions(tracer) : code;
  if (code == 0) {
    tracer->dwfl = dwfl_begin(&files);
    if (tracer->dwfl == NULL || report_modules(tracer) != 0 ||
        !dwfl_attach_state(tracer->dwfl, NULL, process->pid, &threads, tracer)) {
      code = CT_EIO;
    }
  }
  if (code != 0) {
    ct_backtracer_close(tracer);
    return ct_fail(diag, code, "cannot look at the stacks of process %d: %s", (int)process->pid, ct_err_text(code));
  }
  *out = tracer;
  return 0;
}

void
ct_backtracer_close(struct ct_backtracer *tracer)
{
  if (tracer != NULL) {
    if (tracer->dwfl != NULL) {
      dwfl_end(tracer->dwfl);
    }
    ct_mappings_free(&tracer->mappings);
    free(tracer->vdso); /* libdwfl had it */
    free(tracer->regions);
    free(tracer);
  }
}
