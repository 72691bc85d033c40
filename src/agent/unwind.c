/* SPDX-License-Identifier: MIT */
/*
 * What libgcc's unwinder learns about trampolines. _Unwind_Find_FDE (libgcc, unwind-dw2-fde.h) is given an address and
 * fills struct dwarf_eh_bases.
 *
 * The usual case is a return address: the point after a trampoline's call. bases then lies in the unwinder's context,
 * right after the return address that it is about to look at. That is replaced by the true one, whose rows are given:
 * no frame of a trampoline is ever seen, and the caller's has the CFA that it has without hooks.
 *
 * Elsewhere (a signal came in a trampoline, another layout of the context) there are rows for trampolines: they are
 * taken relative to bases->func, so one template FDE serves all of a kind. For a displaced instruction the function
 * itself is asked, with the address the instruction came from, and func is moved by the difference, so that rows and
 * call sites (LSDA) fit.
 *
 * Other unwinders (LLVM's, nongnu's) find all by dl_iterate_phdr. To them each region is a module of one segment, with
 * call frame information of its own (struct ct_region_frames); trampolines are frames then. And so they are to a
 * libgcc that nobody could hook, since it was loaded after contrail had been killed: that asks _dl_find_object.
 */
#include "agent/agent.h"

struct dwarf_eh_bases {
  void *text;
  void *data;
  void *function;
};

/* Elf64_Phdr (System V ABI, program header) and the LSB's struct dl_phdr_info. */
enum { PT_LOAD = 1, PT_GNU_EH_FRAME = 0x6474e550, PF_X = 1, PF_R = 4 };
struct program_header {
  uint32_t type, flags;
  uint64_t offset, vaddr, paddr, filesz, memsz, align;
};
struct dl_phdr_info {
  uint64_t addr;
  const char *name;
  const struct program_header *phdr;
  uint16_t phnum;
  uint64_t adds, subs;
  uint64_t tls_module;
  void *tls_data;
};

#define NOT_OURS ((void *)(int64_t)CT_NOT_OURS)

/* The end of libgcc's struct _Unwind_Context up to its bases, the same since GCC 3. */
struct context_tail {
  uint64_t cfa; /* of the frame further in: its return-address slot lies 8 below */
  uint64_t ra;
  uint64_t lsda;
  struct dwarf_eh_bases bases;
};

/* glibc's struct dl_find_object (dlfcn.h), as it is for this machine. */
struct dl_find_object {
  uint64_t flags;
  uint64_t map_start, map_end;
  void *link_map;
  uint64_t eh_frame; /* PT_GNU_EH_FRAME */
  uint64_t reserved[7];
};

typedef void *(*find_fde_fn)(uint64_t pc, struct dwarf_eh_bases *bases);

static const struct ct_hook_desc *
find_desc(const struct ct_region *region, uint64_t pc)
{
  const struct ct_hook_desc *descs = (const struct ct_hook_desc *)region->desc;
  uint64_t low = 0, high = region->desc_count;
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if (descs[middle].start <= pc) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? 0 : &descs[low - 1];
}

int
agent_is_return_point(uint64_t address)
{
  static __attribute__((section(".data"))) uint64_t last; /* neighbouring frames are of the same few modules */
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  uint64_t at = __atomic_load_n(&last, __ATOMIC_RELAXED);
  for (uint64_t i = 0; i < count; i++, at++) {
    at = at < count ? at : 0;
    const struct ct_region *region = &agent_config.regions[at];
    if (address >= region->lo && address < region->hi) {
      const struct ct_hook_desc *desc = find_desc(region, address);
      __atomic_store_n(&last, at, __ATOMIC_RELAXED);
      return desc != 0 && desc->mode == CT_HOOK_FULL && desc->ret_point == address;
    }
  }
  return 0;
}

/*
 * The true return address in place of ret_point in the unwinder's context; 0 when bases is in no such context. That
 * it is one is seen by ret_point being both in its place there and in the slot that its CFA gives.
 */
static uint64_t
take_true_address(struct dwarf_eh_bases *bases, uint64_t ret_point)
{
  struct context_tail *context =
      (struct context_tail *)((uint64_t)bases - __builtin_offsetof(struct context_tail, bases));
  if (context->ra != ret_point || context->cfa % 8 != 0 || *(const uint64_t *)(context->cfa - 8) != ret_point) {
    return 0;
  }
  context->ra = *(const uint64_t *)(context->cfa - 8 + (uint64_t)agent_config.store_delta);
  return context->ra;
}

AGENT_HIDDEN void *
agent_find_fde(uint64_t pc, struct dwarf_eh_bases *bases, const struct ct_hook_desc *self)
{
  find_fde_fn original = (find_fde_fn)self->after_callout;
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  for (uint64_t i = 0; i < count; i++) {
    const struct ct_region *region = &agent_config.regions[i];
    if (pc < region->lo || pc >= region->hi) {
      continue;
    }
    const struct ct_hook_desc *desc = find_desc(region, pc);
    int is_displaced = desc != 0 && pc >= desc->after_callout && pc < desc->relocated_end;
    if (desc == 0 || (pc < desc->enter && !is_displaced)) { /* a jump on the way to a trampoline, or its gate: all is as
                                                               at the function's entry */
      bases->text = 0;
      bases->data = 0;
      bases->function = (void *)pc;
      return (void *)agent_config.fde_enter;
    }
    if (desc->mode == CT_HOOK_FULL && pc + 1 == desc->ret_point) {
      uint64_t caller = take_true_address(bases, desc->ret_point);
      if (caller != 0) {
        return original(caller - 1, bases);
      }
    }
    if (!is_displaced) {
      bases->text = 0;
      bases->data = 0;
      bases->function = (void *)desc->enter;
      return (void *)(desc->mode != CT_HOOK_FULL              ? agent_config.fde_enter
                      : desc->values == CT_HOOK_VALUES_FEW    ? agent_config.fde_values
                      : desc->values == CT_HOOK_VALUES_DETAIL ? agent_config.fde_detail
                                                              : agent_config.fde_full);
    }
    uint32_t k = 0;
    while (k + 1u < desc->map_count && desc->after_callout + desc->map_new[k + 1] <= pc) {
      k++;
    }
    uint64_t here = desc->after_callout + (desc->map_count != 0 ? desc->map_new[k] : 0);
    uint64_t there = desc->function + (desc->map_count != 0 ? desc->map_old[k] : 0);
    /* The unwinder asks for the address before a return address: stay within the instruction. */
    void *fde = original(there, bases);
    if (fde != 0) {
      bases->function = (void *)((uint64_t)bases->function + (here - there));
    }
    return fde;
  }
  return NOT_OURS;
}

static int
is_unwinder(uint64_t address)
{
  for (uint32_t i = 0; i < CT_UNWINDER_MAX; i++) {
    const struct ct_unwinder *unwinder = &agent_config.unwinders[i];
    if (address >= unwinder->lo && address < unwinder->hi) {
      return 1;
    }
  }
  return 0;
}

AGENT_HIDDEN uint64_t
agent_modules(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data, const struct ct_hook_desc *self)
{
  typedef int (*modules_fn)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
  if (!is_unwinder((uint64_t)callback)) {
    return (uint64_t)(int64_t)CT_NOT_OURS;
  }
  int result = ((modules_fn)self->after_callout)(callback, data);
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  for (uint64_t i = 0; i < count && result == 0; i++) {
    struct ct_region region = agent_config.regions[i];
    if (region.hi == 0 || region.desc_count == 0) {
      continue;
    }
    uint64_t frames = ct_region_frames_at(region.desc, region.desc_count, CT_REGION_FRAMES_PLAIN);
    uint64_t bytes = region.hi - region.lo;
    struct program_header headers[2] = {
        {.type = PT_LOAD, .flags = PF_R | PF_X, .filesz = bytes, .memsz = bytes},
        {.type = PT_GNU_EH_FRAME,
         .flags = PF_R,
         .vaddr = frames - region.lo,
         .filesz = sizeof(struct ct_region_frames),
         .memsz = sizeof(struct ct_region_frames)},
    };
    struct dl_phdr_info info = {.addr = region.lo, .name = "", .phdr = headers, .phnum = 2};
    result = callback(&info, sizeof(info), data);
  }
  return (uint32_t)result;
}

AGENT_HIDDEN uint64_t
agent_find_object(uint64_t pc, struct dl_find_object *result, const struct ct_hook_desc *self)
{
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  for (uint64_t i = 0; i < count; i++) {
    struct ct_region region = agent_config.regions[i];
    if (pc >= region.lo && pc < region.hi && region.desc_count != 0) {
      *result = (struct dl_find_object){
          .map_start = region.lo,
          .map_end = region.hi,
          .eh_frame = ct_region_frames_at(region.desc, region.desc_count, CT_REGION_FRAMES_SIGNAL),
      };
      return 0;
    }
  }
  return (uint64_t)(int64_t)CT_NOT_OURS;
}
