/* SPDX-License-Identifier: MIT */
/* See excused.h. */
#include "excused.h"

#include <sys/syscall.h>

static bool
has_word(const struct excused *excused, uint64_t address, uint64_t bytes)
{
  for (size_t i = 0; i < excused->count; i++) {
    if (excused->words[i] >= address >> 3 && excused->words[i] <= (address + bytes - 1) >> 3) {
      return true;
    }
  }
  return false;
}

static void
set_words(struct excused *excused, uint64_t address, uint64_t bytes, bool is_excused)
{
  size_t kept = 0;
  for (size_t i = 0; i < excused->count; i++) {
    uint64_t start = excused->words[i] << 3;
    if (start < address || start + 8 > address + bytes) {
      excused->words[kept++] = excused->words[i];
    }
  }
  excused->count = kept;
  for (uint64_t word = address >> 3; is_excused && word <= (address + bytes - 1) >> 3; word++) {
    if (excused->count < EXCUSED_WORDS && !has_word(excused, word << 3, 8)) {
      excused->words[excused->count++] = word;
    }
  }
}

static bool
returns_id(uint64_t number)
{
  return number == SYS_set_tid_address || number == SYS_getpid || number == SYS_gettid || number == SYS_getppid;
}

void
excused_step(struct excused *excused, const struct ct_steps_step *step, uint64_t rax_before,
             const struct ct_steps_state *after)
{
  const struct ct_effects *e = step->effects;
  if (e == NULL) {
    return;
  }
  bool reads_counter = step->length >= 2 && step->code[0] == 0x0f &&
                       (step->code[1] == 0x31 || (step->code[1] == 0x01 && step->code[2] == 0xf9));
  bool loads =
      step->did.load_size != 0 && excused->count != 0 && has_word(excused, step->did.load_address, step->did.load_size);
  int64_t result = (int64_t)after->cpu.reg[CT_RAX];
  if (e->flow == CT_INSN_FLOW_SYSCALL && rax_before == SYS_getrandom && result > 0) {
    set_words(excused, after->cpu.reg[CT_RDI], (uint64_t)result, true);
  }
  bool is_id = e->flow == CT_INSN_FLOW_SYSCALL && returns_id(rax_before);
  bool is_excused =
      is_id || reads_counter || loads || (e->reads & excused->registers) != 0 || (e->flags_read & excused->flags) != 0;
  for (unsigned i = 0; i < step->did.store_count && (is_excused || excused->count != 0); i++) {
    const struct ct_mem_store *store = &step->did.stores[i];
    if (store->count == 1) {
      set_words(excused, store->address, store->size, is_excused);
    }
  }
  excused->registers = (uint16_t)((excused->registers & ~e->writes) | (is_excused ? e->writes : 0));
  excused->flags = (uint16_t)((excused->flags & ~e->flags_written) | (is_excused ? e->flags_written : 0));
}

void
excused_keep(struct excused *excused, uint16_t registers, uint16_t flags)
{
  excused->registers &= registers;
  excused->flags &= flags;
}
