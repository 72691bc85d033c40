/* SPDX-License-Identifier: MIT */
/*
 * The fast decoder against Zydis over real code, and what it costs.
 *
 *   decode_bench [--rounds N] FILE...
 *
 * Walks the functions of each ELF file as the scanner does, compares the two at each instruction, and says how many
 * there were, how many only Zydis knows, and the time that each takes per instruction (fast with Zydis for the rest,
 * and Zydis alone). Files that are no ELF of ours are passed over. Exit status 1 when there was a difference.
 */
#include "target/elf.h"
#include "target/functions.h"
#include "x86/decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct totals {
  uint64_t files, functions, instructions, slow, invalid, differences;
  uint64_t by_first[256]; /* of the slow ones: first byte after the prefixes */
  double fast_ns, full_ns, fast_cycles, full_cycles;
};

static uint64_t
now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What op does not say has no meaning. */
static bool
same(const struct ct_insn *a, const struct ct_insn *b)
{
  enum ct_op op = ct_insn_op(a);
  bool with_rm = op == CT_OP_ADD_IMM || op == CT_OP_SUB_IMM || op == CT_OP_MOV_IMM || op == CT_OP_WRITE_RM;
  bool with_value = (with_rm && op != CT_OP_WRITE_RM) || op == CT_OP_BRANCH || op == CT_OP_JUMP || op == CT_OP_CALL;
  bool memory = (a->kind & CT_INSN_MEMORY) != 0;
  return a->length == b->length && op == ct_insn_op(b) && ct_insn_traits(a) == ct_insn_traits(b) &&
         memory == ((b->kind & CT_INSN_MEMORY) != 0) && ct_insn_base(a) == ct_insn_base(b) &&
         (!memory || ct_insn_disp(a) == ct_insn_disp(b)) && (!with_value || ct_insn_value(a) == ct_insn_value(b)) &&
         (!with_rm || ct_insn_rm(a) == ct_insn_rm(b)) && (op != CT_OP_LEA || ct_insn_reg(a) == ct_insn_reg(b));
}

static void
report(const char *path, uint64_t address, const uint8_t *code, size_t size, const struct ct_insn *fast,
       const struct ct_insn *full, bool valid)
{
  printf("%s %" PRIx64 ":", path, address);
  for (size_t i = 0; i < 15 && i < size; i++) {
    printf(" %02x", code[i]);
  }
  for (int which = 0; which < 2; which++) {
    const struct ct_insn *in = which == 0 ? fast : full;
    if (which == 0 || valid) {
      printf("\n  %s: length %u op %u traits %u kind %x rex %u modrm %02x sib %02x disp %u: %d value %u: %d",
             which == 0 ? "fast" : "full", in->length, ct_insn_op(in), ct_insn_traits(in), in->kind, in->rex,
             ct_insn_modrm(in), ct_insn_sib(in), in->disp_bytes, ct_insn_disp(in), in->imm_bytes, ct_insn_value(in));
    }
  }
  printf(valid ? "\n" : "\n  full: no instruction\n");
}

static void
compare(const char *path, const uint8_t *code, uint64_t address, size_t size, size_t readable, struct totals *totals)
{
  size_t at = 0;
  while (at < size) {
    struct ct_insn fast, full;
    bool known = ct_decode_fast(code + at, readable - at, &fast) && fast.length <= size - at;
    bool valid = ct_decode_full(code + at, size - at, &full);
    if (known && (!valid || !same(&fast, &full)) && totals->differences++ < 3) {
      report(path, address + at, code + at, size - at, &fast, &full, valid);
    }
    totals->instructions++;
    totals->invalid += !valid;
    if (!known) {
      totals->slow++;
      size_t p = at;
      while (p + 1 < size && (code[p] == 0x66 || code[p] == 0xf2 || code[p] == 0xf3 || (code[p] & 0xf0) == 0x40)) {
        p++;
      }
      totals->by_first[code[p]]++;
    }
    at += valid ? full.length : 1;
  }
}

static uint64_t
walk(bool only_full, const uint8_t *code, size_t size, size_t readable)
{
  uint64_t sum = 0;
  struct ct_insn in;
  for (size_t at = 0; at < size;) {
    if (only_full ? ct_decode_full(code + at, size - at, &in) : ct_decode(code + at, size - at, readable - at, &in)) {
      at += in.length;
      sum += ct_insn_op(&in);
    } else {
      at++;
    }
  }
  return sum;
}

/* How long a dependent addition takes, that is, a cycle: the machine may be shared and its clock may change. */
static double
cycle_ns(void)
{
  uint64_t begin = now_ns(), x = 0;
  for (int i = 0; i < 4000000; i++) {
    __asm__ volatile("add $1, %0" : "+r"(x));
  }
  return (double)(now_ns() - begin) / 4e6;
}

static void
bench_file(const char *path, int rounds, struct totals *totals)
{
  struct ct_elf *elf;
  const struct ct_function *functions;
  size_t count;
  if (ct_elf_open(path, &elf, NULL) != 0) {
    return;
  }
  if (ct_elf_functions(elf, &functions, &count, NULL) == 0) {
    totals->files++;
    totals->functions += count;
    volatile uint64_t sink = 0;
    for (int pass = 0; pass < 1 + 2 * rounds; pass++) {
      double cycle = pass != 0 ? cycle_ns() : 1;
      uint64_t begin = now_ns();
      for (size_t i = 0; i < count; i++) {
        size_t left = ct_elf_bytes_left(elf, functions[i].address);
        size_t size = functions[i].size < left ? functions[i].size : left;
        const uint8_t *code = size != 0 ? ct_elf_bytes(elf, functions[i].address, left) : NULL;
        if (code != NULL && pass == 0) {
          compare(path, code, functions[i].address, size, left, totals);
        } else if (code != NULL) {
          sink += walk(pass % 2 == 0, code, size, left);
        }
      }
      double took = pass == 0 ? 0 : (double)(now_ns() - begin);
      *(pass % 2 != 0 ? &totals->fast_ns : &totals->full_ns) += took;
      *(pass % 2 != 0 ? &totals->fast_cycles : &totals->full_cycles) += took / cycle;
    }
  }
  ct_elf_close(elf);
}

int
main(int argc, char **argv)
{
  struct totals totals = {0};
  int rounds = 1, first = 1;
  if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
    rounds = atoi(argv[2]);
    first = 3;
  }
  for (int i = first; i < argc; i++) {
    bench_file(argv[i], rounds, &totals);
  }
  double n = totals.instructions != 0 ? (double)totals.instructions : 1;
  printf("%" PRIu64 " files, %" PRIu64 " functions, %" PRIu64 " instructions, %.3f %% left to Zydis (%.3f %% none)\n",
         totals.files, totals.functions, totals.instructions, 100 * (double)totals.slow / n,
         100 * (double)totals.invalid / n);
  if (rounds > 0) {
    double times = n * rounds;
    printf("fast %.2f ns (%.1f cycles), Zydis alone %.2f ns (%.1f cycles) per instruction\n", totals.fast_ns / times,
           totals.fast_cycles / times, totals.full_ns / times, totals.full_cycles / times);
  }
  for (int shown = 0; shown < 12 && totals.slow != 0; shown++) {
    int most = 0;
    for (int b = 1; b < 256; b++) {
      most = totals.by_first[b] > totals.by_first[most] ? b : most;
    }
    printf("  left to Zydis: %02x %.3f %%\n", most, 100 * (double)totals.by_first[most] / n);
    totals.by_first[most] = 0;
  }
  printf("%" PRIu64 " differences\n", totals.differences);
  return totals.differences != 0;
}
