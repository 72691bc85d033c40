/* SPDX-License-Identifier: MIT */
/*
 * The reader's emulator over real code: what share of a program's instructions it derives, and how many it does in a
 * second.
 *
 *   emulate_bench [--rounds N] FILE...
 *
 * Takes the functions of each ELF file straight on, whatever branches say; the values are what comes out. The effects
 * of each instruction are worked out once before, as the reader does. `hot` goes over 500 instructions a hundred times,
 * then over the next ones, as programs do; `cold` over all of them, once in each round.
 */
#include "target/elf.h"
#include "target/functions.h"
#include "x86/emulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HOT_INSTRUCTIONS = 500, HOT_TIMES = 100, COUNT_MAX = 2000000 };

struct program {
  struct ct_effects *effects;
  size_t count;
  uint64_t derivable, uses_loaded, loaded_in_register, undefined;
  uint64_t decode_ns;
};

static uint64_t sink;

static uint64_t
now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
take_function(const uint8_t *code, size_t size, struct program *program)
{
  for (size_t at = 0; at < size && program->count < COUNT_MAX;) {
    struct ct_effects *e = &program->effects[program->count];
    if (!ct_effects_of(code + at, size - at, e)) {
      return;
    }
    at += e->length;
    program->count++;
    program->derivable += e->derivable;
    program->uses_loaded += e->derivable && e->uses_loaded;
    program->loaded_in_register += e->derivable && e->loaded_reg != CT_NO_REG;
    program->undefined += e->derivable && e->flags_undefined != 0;
  }
}

static bool
take_file(const char *path, struct program *program)
{
  struct ct_elf *elf;
  const struct ct_function *functions;
  size_t count = 0;
  if (ct_elf_open(path, &elf, NULL) != 0) {
    return false;
  }
  uint64_t begin = now_ns();
  if (ct_elf_functions(elf, &functions, &count, NULL) == 0) {
    for (size_t i = 0; i < count; i++) {
      size_t left = ct_elf_bytes_left(elf, functions[i].address);
      size_t size = functions[i].size < left ? functions[i].size : left;
      if (size != 0) {
        take_function(ct_elf_bytes(elf, functions[i].address, left), size, program);
      }
    }
  }
  program->decode_ns = now_ns() - begin;
  ct_elf_close(elf);
  return program->count != 0;
}

/* What is not derivable costs here what skipping it costs. */
static void
run(const struct ct_effects *effects, size_t count, struct ct_cpu *cpu)
{
  struct ct_mem_store stores[2];
  unsigned store_count = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t loaded = cpu->reg[i & 15] * 0x9e3779b97f4a7c15u;
    if (ct_emulate(&effects[i], cpu, loaded, stores, &store_count) != CT_EMULATED) {
      cpu->rip += effects[i].length;
      cpu->reg[CT_RDX] = 0;
    }
    cpu->unknown = 0; /* as from a record */
    sink += store_count;
  }
}

static double
run_hot(const struct program *program)
{
  struct ct_cpu cpu = {.flags = 0x202};
  uint64_t begin = now_ns(), done = 0;
  for (size_t at = 0; at < program->count; at += HOT_INSTRUCTIONS) {
    size_t n = program->count - at < HOT_INSTRUCTIONS ? program->count - at : HOT_INSTRUCTIONS;
    for (unsigned k = 0; k < HOT_TIMES; k++, done += n) {
      run(program->effects + at, n, &cpu);
    }
  }
  return (double)done * 1e3 / (double)(now_ns() - begin);
}

static double
run_cold(const struct program *program)
{
  struct ct_cpu cpu = {.flags = 0x202};
  uint64_t begin = now_ns();
  run(program->effects, program->count, &cpu);
  return (double)program->count * 1e3 / (double)(now_ns() - begin);
}

static double
percent(uint64_t part, uint64_t whole)
{
  return 100 * (double)part / (double)(whole != 0 ? whole : 1);
}

int
main(int argc, char **argv)
{
  int rounds = 1, first = 1;
  struct program program = {.effects = malloc(COUNT_MAX * sizeof(struct ct_effects))};
  if (program.effects == NULL) {
    return 1;
  }
  if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
    rounds = atoi(argv[2]);
    first = 3;
  }
  for (int i = first; i < argc; i++) {
    program = (struct program){.effects = program.effects};
    if (!take_file(argv[i], &program)) {
      continue;
    }
    printf("%s: %zu instructions, %.2f %% derivable, %.2f %% with a value loaded (%.2f %% in a register afterwards), "
           "%.2f %% leave flags undefined; effects in %.0f ns, %zu bytes each\n",
           argv[i], program.count, percent(program.derivable, program.count),
           percent(program.uses_loaded, program.count), percent(program.loaded_in_register, program.count),
           percent(program.undefined, program.count), (double)program.decode_ns / (double)program.count,
           sizeof(struct ct_effects));
    for (int round = 0; round < rounds; round++) {
      double hot = run_hot(&program), cold = run_cold(&program);
      printf("  hot %.1f M, cold %.1f M instructions a second\n", hot, cold);
    }
  }
  free(program.effects);
  return sink == 1; /* used, so that nothing is left out */
}
