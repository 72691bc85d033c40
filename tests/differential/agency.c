/* SPDX-License-Identifier: MIT */
/*
 * See agency.h. The stubs keep what they need below the stack pointer, as the agent's do (agent/entry.S), so that a
 * signal handler that runs hooked code on another stack does no harm.
 */
#include "agency.h"

#include "ring/layout.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_SET_GS 0x1001

extern const char agency_stubs[], agency_stubs_end[];
void agency_slow_enter(void);
void agency_slow_return(void);
void agency_not_module(void);
void agency_restore_ra_slot(void);
void agency_callout(void);
/* For agency_slow_enter and agency_restore_ra_slot. */
extern uint64_t agency_delta, agency_table;
uint64_t agency_delta, agency_table;

#define GO_ON(field)                                                                                                   \
  "  mov " #field "(%r11), %rax\n"                                                                                     \
  "  mov %rax, -104(%rsp)\n"                                                                                           \
  "  mov -8(%rsp), %rax\n  mov -16(%rsp), %rdx\n  mov -24(%rsp), %r11\n  mov -32(%rsp), %r10\n"                        \
  "  jmp *-104(%rsp)\n"

__asm__(".text\n"
        ".globl agency_stubs, agency_stubs_end, agency_slow_enter, agency_slow_return, agency_not_module\n"
        ".globl agency_restore_ra_slot, agency_callout\n"
        "agency_stubs:\n"
        /* Nothing is recorded; but an enter-only function must find the true address. */
        "agency_slow_enter:\n"
        "  cmpb $1, 52(%r11)\n" /* CT_DESC_MODE, CT_HOOK_ENTER */
        "  jne agency_not_module\n"
        "  mov (%rsp), %rax\n"
        "  shr $16, %rax\n"
        "  add agency_table(%rip), %rax\n"
        "  cmpb $2, (%rax)\n"
        "  jne agency_not_module\n"
        "agency_restore_ra_slot:\n"
        "  mov agency_delta(%rip), %rax\n"
        "  mov (%rsp, %rax), %rax\n"
        "  mov %rax, (%rsp)\n"
        "agency_not_module:\n" GO_ON(8) /* CT_DESC_RELOCATED */
        "agency_slow_return:\n"
        "  mov 24(%r11), %r11\n" /* CT_DESC_RET_DONE: it loads rax, rdx and r11 itself */
        "  jmp *%r11\n"
        "agency_callout:\n" GO_ON(64) /* CT_DESC_AFTER_CALLOUT */
        "agency_stubs_end:\n");
static_assert(CT_DESC_RELOCATED == 8 && CT_DESC_RET_DONE == 24 && CT_DESC_AFTER_CALLOUT == 64 && CT_DESC_MODE == 52 &&
                  CT_HOOK_ENTER == 1,
              "assembly");

bool
agency_is_stub(uint64_t rip)
{
  return rip >= (uint64_t)agency_stubs && rip < (uint64_t)agency_stubs_end;
}

static int
own_syscall(void *context, long number, const uint64_t args[6], int64_t *result)
{
  long code = syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
  *result = code;
  if (code == -1) {
    extern int *__errno_location(void);
    *result = -*__errno_location();
  }
  return 0;
}

/* Without an address: far from the libraries, which need the room around them for trampolines. */
static void *
map(uint64_t address, size_t bytes)
{
  static uint64_t next = 0x5a0000000000; /* above every place that an executable and its heap are put at */
  if (address == 0) {
    address = next;
    next += (bytes + 0xffff) & ~0xffffull;
  }
  void *at = mmap((void *)address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED || (address != 0 && at != (void *)address) ? NULL : at;
}

int
agency_set_up(struct agency *agency, uint64_t stack, uint64_t bytes, int64_t delta)
{
  memset(agency, 0, sizeof(*agency));
  agency->config = map(0, sizeof(*agency->config));
  agency->control = map(0, sizeof(*agency->control));
  /* Twice as much as is needed, so that the address can be one that has CT_CURSOR_VALID. */
  uint64_t segment = (uint64_t)map(0, CT_SEGMENT_STRIDE);
  segment = (segment & CT_CURSOR_VALID) != 0 ? segment : segment + CT_CURSOR_VALID;
  agency->segment = (struct ct_ring_event *)segment;
  agency->table = map(0, CT_TABLE_BYTES);
  agency->ring = map(0, sizeof(*agency->ring));
  if (agency->config == NULL || agency->ring == NULL || agency->control == NULL || segment == CT_CURSOR_VALID ||
      agency->table == NULL || map(stack + (uint64_t)delta, bytes) == NULL) {
    return -1;
  }
  agency->process = (struct ct_process){.pid = getpid(), .mem_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC)};
  agency->remote = (struct ct_remote){.process = &agency->process, .syscall = own_syscall};
  agency_delta = (uint64_t)delta;
  agency_table = (uint64_t)agency->table;
  agency->layout = (struct ct_agent_layout){.config = (uint64_t)agency->config,
                                            .table = (uint64_t)agency->table,
                                            .ring = (uint64_t)agency->ring,
                                            .store_delta = delta,
                                            .head = {.slow_enter = (uint64_t)agency_slow_enter,
                                                     .slow_return = (uint64_t)agency_slow_return,
                                                     .not_module = (uint64_t)agency_not_module,
                                                     .restore_ra_slot = (uint64_t)agency_restore_ra_slot,
                                                     .restore_passthrough = (uint64_t)agency_restore_ra_slot}};
  /* All else that the agent has are callouts; each is called by some function of libc. */
  uint64_t *stubs = (uint64_t *)&agency->layout.head;
  for (size_t i = 0; i < sizeof(agency->layout.head) / sizeof(*stubs); i++) {
    if (stubs[i] == 0) {
      stubs[i] = (uint64_t)agency_callout;
    }
  }
  agency_ready(agency, stack, bytes, true);
  return agency->process.mem_fd >= 0 && syscall(SYS_arch_prctl, ARCH_SET_GS, agency->control) == 0 ? 0 : -1;
}

void
agency_tear_down(struct agency *agency)
{
  syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
  munmap(agency->table, CT_TABLE_BYTES);
  munmap(agency->ring, sizeof(*agency->ring));
  if (agency->process.mem_fd > 0) {
    close(agency->process.mem_fd);
  }
  ct_agent_layout_free(&agency->layout);
}

void
agency_ready(struct agency *agency, uint64_t stack, uint64_t bytes, bool room)
{
  *agency->control = (struct ct_control_page){.cursor = room ? (uint64_t)agency->segment | AGENCY_TAG : 0,
                                              .stack_lo = stack,
                                              .stack_len = bytes,
                                              .table = (uint64_t)agency->table,
                                              .magic = CT_CONTROL_MAGIC,
                                              .mode = CT_MODE_ON,
                                              .countdown = 1};
  memset(agency->segment, 0, 8 * sizeof(*agency->segment));
}

int
agency_install(struct agency *agency, struct agency_module *module, const struct ct_plan *plan, uint64_t base,
               char *text, size_t size)
{
  static uint32_t next_fn = 1;
  struct ct_filter_result all = {0};
  struct ct_diag diag = {""};
  memset(module, 0, sizeof(*module));
  module->plan = plan;
  if (ct_install_module(&agency->remote, &agency->layout, plan, &all, base, next_fn, &module->installed, &diag) != 0) {
    snprintf(text, size, "%s: %s", plan->path, diag.text);
    return -1;
  }
  next_fn += (uint32_t)plan->hooked;
  for (uint32_t i = 0; i < agency->layout.region_count; i++) {
    const struct ct_region *region = &agency->config->regions[i];
    if (agency->layout.region_used[i] == module->installed.owner && region->lo == module->installed.region) {
      module->descs = (const struct ct_hook_desc *)region->desc;
      module->desc_count = region->desc_count;
    }
  }
  if (module->descs == NULL) {
    snprintf(text, size, "%s: the agent got no region", plan->path);
  }
  return module->descs == NULL ? -1 : 0;
}

const struct ct_hook_desc *
agency_desc(const struct agency_module *module, uint32_t fn, uint64_t function)
{
  for (size_t i = 0; i < module->desc_count; i++) {
    if (module->descs[i].fn == fn && module->descs[i].function == function) {
      return &module->descs[i];
    }
  }
  return NULL;
}
