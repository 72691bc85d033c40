/* SPDX-License-Identifier: MIT */
/*
 * A region besides its trampolines: the table's marks, call frame information for unwinders, the agent's lists; and how
 * all that goes again.
 */
#include "hook/install_internal.h"

#include "hook/near_alloc.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

int
ct_install_mark_range(const struct ct_remote *remote, const struct ct_agent_layout *layout, uint64_t lo, uint64_t hi,
                      uint8_t kind)
{
  uint8_t marks[4096];
  memset(marks, kind, sizeof(marks));
  uint64_t first = lo >> CT_TABLE_SHIFT;
  uint64_t last = (hi - 1) >> CT_TABLE_SHIFT;
  while (first <= last) {
    uint64_t count = last - first + 1 < sizeof(marks) ? last - first + 1 : sizeof(marks);
    int code = ct_process_write(remote->process, layout->table + first, marks, count);
    if (code != 0) {
      return code;
    }
    first += count;
  }
  return 0;
}

int
ct_install_mark_text(const struct ct_remote *remote, const struct ct_agent_layout *layout, const struct ct_plan *plan,
                     uint64_t base, uint8_t kind)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(plan->elf, &segments);
  for (size_t s = 0; s < count; s++) {
    if ((segments[s].flags & PF_X) != 0 && segments[s].memory_bytes != 0) {
      uint64_t lo = base + segments[s].address;
      int code = ct_install_mark_range(remote, layout, lo, lo + segments[s].memory_bytes, kind);
      if (code != 0) {
        return code;
      }
    }
  }
  for (size_t i = 0; i < plan->foreign_count; i++) {
    int code = ct_install_mark_range(remote, layout, base + plan->foreign[i].start, base + plan->foreign[i].end,
                                     CT_TEXT_OTHER);
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

int
ct_install_write_frames(const struct ct_process *process, const struct ct_install_region *region,
                        enum ct_region_frames_kind kind)
{
  enum { CFA = 0x0c, EXPRESSION = 0x10, VALUE = 0x16, BREG7 = 0x77, CONST8S = 0x0e, PLUS = 0x22 }; /* DWARF 5, 7 */
  enum { DEREF = 0x06, LIT1 = 0x31, MINUS = 0x1c, RSP = 7, RA = 16 };
  /* Version, augmentation, alignments, return address column, encoding of pointers; CFA = rsp; rsp + the distance ...
   */
  static const uint8_t location[] = {1,   'z', 'R', 0,          1,  0x78, RA,    1, 0,
                                     CFA, RSP, 0,   EXPRESSION, RA, 12,   BREG7, 0, CONST8S};
  static const uint8_t value[] = {1,   'z', 'R', 'S',   0,  1,  0x78,  RA, 1,      0,
                                  CFA, RSP, 0,   VALUE, RA, 15, BREG7, 0,  CONST8S};
  /* ... and of the second the word there, less 1. */
  static const uint8_t rest[] = {PLUS, DEREF, LIT1, MINUS};
  bool is_value = kind == CT_REGION_FRAMES_SIGNAL;
  size_t head = is_value ? sizeof(value) : sizeof(location);
  int64_t distance = region->store_delta - 8;
  uint64_t at = ct_region_frames_at(region->descs_at, region->desc_count, kind);
  struct ct_region_frames frames = {
      .version = 1,
      .pointer_encoding = 0x1b, /* pcrel, sdata4 */
      .count_encoding = 0x03,   /* udata4 */
      .table_encoding = 0x3b,   /* datarel, sdata4 */
      .eh_frame = offsetof(struct ct_region_frames, cie_length) - offsetof(struct ct_region_frames, eh_frame),
      .count = 1,
      .start = (int32_t)(region->start - at),
      .fde_at = offsetof(struct ct_region_frames, fde_length),
      .cie_length = sizeof(frames.cie) + sizeof(frames.cie_id),
      .fde_length = offsetof(struct ct_region_frames, end) - offsetof(struct ct_region_frames, fde_cie),
      .fde_cie = offsetof(struct ct_region_frames, fde_cie) - offsetof(struct ct_region_frames, cie_length),
      .fde_start = region->start,
      .fde_bytes = region->descs_at - region->start,
  };
  memcpy(frames.cie, is_value ? value : location, head);
  memcpy(frames.cie + head, &distance, sizeof(distance));
  memcpy(frames.cie + head + sizeof(distance), rest, is_value ? sizeof(rest) : 1);
  return ct_process_write(process, at, &frames, sizeof(frames));
}

int
ct_install_publish_unwinder(const struct ct_remote *remote, struct ct_agent_layout *layout, const struct ct_plan *plan,
                            uint64_t base, uint32_t owner)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(plan->elf, &segments);
  struct ct_unwinder unwinder = {UINT64_MAX, 0};
  for (size_t i = 0; i < count; i++) {
    if ((segments[i].flags & PF_X) != 0 && segments[i].memory_bytes != 0) {
      uint64_t lo = base + segments[i].address;
      unwinder.lo = lo < unwinder.lo ? lo : unwinder.lo;
      unwinder.hi = lo + segments[i].memory_bytes > unwinder.hi ? lo + segments[i].memory_bytes : unwinder.hi;
    }
  }
  for (uint32_t i = 0; i < CT_UNWINDER_MAX; i++) {
    if (layout->unwinder_owner[i] == 0) {
      layout->unwinder_owner[i] = owner;
      return ct_process_write(remote->process,
                              layout->config + offsetof(struct ct_agent_config, unwinders) + i * sizeof(unwinder),
                              &unwinder, sizeof(unwinder));
    }
  }
  return 0;
}

bool
ct_patch_holds(const struct ct_remote *remote, const struct ct_patch *patch)
{
  uint8_t bytes[CT_JUMP_BYTES];
  return ct_process_read(remote->process, patch->address, bytes, patch->length) == 0 &&
         memcmp(bytes, patch->bytes, patch->length) == 0;
}

/*
 * Between the two announcements whoever takes the hooks out finds it although it is in no list. Should the thread that
 * makes our system calls go on by itself, it stays announced.
 */
int
ct_install_give_up_region(const struct ct_remote *remote, const struct ct_agent_layout *layout,
                          struct ct_installed *installed)
{
  uint64_t args[6] = {installed->region, installed->region_bytes};
  int64_t result;
  if (installed->region == 0) {
    return 0;
  }
  ct_install_mark_range(remote, layout, installed->region, installed->region + installed->region_bytes, CT_TEXT_OTHER);
  int code = remote->syscall(remote->context, SYS_munmap, args, &result);
  installed->region = installed->region_bytes = 0;
  return code != 0 ? code : ct_near_announce(remote, layout, CT_PENDING_REGION, 0, 0);
}

void
ct_install_remove(const struct ct_remote *remote, struct ct_agent_layout *layout, struct ct_installed *installed)
{
  if (installed->region != 0) { /* before it is struck out */
    ct_near_announce(remote, layout, CT_PENDING_REGION, installed->region, installed->region_bytes);
  }
  for (size_t i = 0; i < layout->region_count && installed->owner != 0; i++) {
    if (layout->region_used[i] == installed->owner) {
      uint64_t at = layout->config + offsetof(struct ct_agent_config, regions) + i * sizeof(struct ct_region);
      struct ct_region none = {0};
      if (ct_process_write(remote->process, at, &none, sizeof(none)) == 0) {
        layout->region_used[i] = 0;
      }
    }
  }
  for (uint32_t i = 0; i < CT_UNWINDER_MAX && installed->owner != 0; i++) {
    if (layout->unwinder_owner[i] == installed->owner) {
      uint64_t at = layout->config + offsetof(struct ct_agent_config, unwinders) + i * sizeof(struct ct_unwinder);
      struct ct_unwinder none = {0};
      layout->unwinder_owner[i] =
          ct_process_write(remote->process, at, &none, sizeof(none)) == 0 ? 0 : installed->owner;
    }
  }
  ct_near_free_stubs(layout, installed->owner);
  ct_install_give_up_region(remote, layout, installed);
  ct_installed_free(installed);
}

void
ct_installed_free(struct ct_installed *installed)
{
  free(installed->install_refusals);
  free(installed->gates);
  free(installed->patches);
  memset(installed, 0, sizeof(*installed));
}
