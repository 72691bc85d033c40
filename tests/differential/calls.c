/* SPDX-License-Identifier: MIT */
/*
 * See calls.h. Both processes are children of this one and have everything at the same addresses: libraries, buffers,
 * stack. One of them installs its hooks into all libraries that are loaded (with the stand-in for the agent), then
 * both make their cases in batches into shared memory, and the parent compares.
 *
 * Besides the names of signatures.c: the variants for other processors that IFUNCs choose from, where the libraries'
 * debug files name them (__memcpy_avx_unaligned, __sin_fma), and the vector functions of libmvec by their mangling.
 */
#include "calls.h"

#include "agency.h"
#include "signatures.h"
#include "target/elf.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  TARGETS_MAX = 4096,
  STEPS_MAX = 3,
  BATCH = 64,
  DATA_BYTES = 128 << 10,
  STACK_BYTES = 256 << 10,
  ARGUMENTS_ON_STACK = 1024,
  MODULES_MAX = 32,
  FRESH_MAX = 6000, /* bytes that a case reads or writes at one place */
  SHOWN_MAX = 5,
};
#define DATA_AT     0x530000000000ull
#define STACK_AT    0x530000100000ull
#define STORE_DELTA 0x1000000000ll
#define HOOKING     UINT64_MAX

struct target {
  char name[64];
  uint64_t address[STEPS_MAX];
  const char *arguments[STEPS_MAX];
  size_t steps;
};

struct call_outcome {
  struct machine begin[STEPS_MAX], machine[STEPS_MAX];
  struct ending ending[STEPS_MAX];
  uint64_t data; /* a sum over the buffers, after the last step */
};

struct shared {
  volatile uint64_t batch_from, batch_to; /* the batch to make; none: to end */
  volatile uint64_t at[2];                /* the case that each child makes; HOOKING before the first */
  volatile uint64_t hooked, events;
  struct call_outcome outcome[2][BATCH];
};

struct loaded {
  char path[512];
  uint64_t base;
  struct ct_plan *plan;
};

static struct target targets[TARGETS_MAX];
static size_t target_count;
static struct loaded modules[MODULES_MAX];
static size_t module_count;
static uint8_t *data;
static struct shared *shared;
static struct agency agency;

/* ---- what can be called ---- */

static const char *
next_word(const char *at, char *word, size_t size, const char *ends)
{
  size_t length = strcspn(at, ends);
  snprintf(word, size, "%.*s", (int)length, at);
  return at[length] == 0 ? NULL : at + length + 1;
}

static void
add_target(const char *name, uint64_t address, const char *arguments)
{
  if (target_count == TARGETS_MAX || address == 0) {
    return;
  }
  struct target *target = &targets[target_count++];
  snprintf(target->name, sizeof(target->name), "%s", name);
  target->address[0] = address;
  target->arguments[0] = arguments;
  target->steps = 1;
}

static void
add_sequence(void *library, const char *text)
{
  struct target target = {.name = ""};
  char word[64];
  for (const char *at = text; at != NULL && target.steps < STEPS_MAX;) {
    const char *arguments = next_word(at, word, sizeof(word), ":");
    target.address[target.steps] = (uint64_t)dlsym(library, word);
    if (target.address[target.steps] == 0) {
      return;
    }
    snprintf(target.name, sizeof(target.name), "%s", word);
    target.arguments[target.steps++] = arguments;
    at = strchr(arguments, ';');
    at = at != NULL ? at + 1 : NULL;
  }
  if (target_count < TARGETS_MAX) {
    targets[target_count++] = target;
  }
}

/* The arguments of a function by its name in a library's signatures; NULL. */
static const char *
arguments_of(const struct signature *signatures, const char *name, size_t length)
{
  for (; signatures->arguments != NULL; signatures++) {
    for (const char *at = signatures->names; at != NULL && *at != 0; at += *at == ' ') {
      size_t word = strcspn(at, " ");
      if (word == length && strncmp(at, name, length) == 0) {
        return signatures->arguments;
      }
      at += word;
    }
  }
  return NULL;
}

/* __memcpy_avx_unaligned_erms, __ieee754_exp_fma, __sinf_sse2 ... */
static void
add_variant(const struct signature *signatures, const char *name, uint64_t address)
{
  static const char *const words[] = {"sse2", "sse4", "ssse3", "avx", "avx2",  "evex",   "avx512",
                                      "fma",  "fma4", "erms",  "c",   "sse41", "evex512"};
  const char *plain = name + strspn(name, "_");
  plain += strncmp(plain, "ieee754_", 8) == 0 ? 8 : 0;
  const char *suffix = strchr(plain, '_');
  if (suffix == NULL || plain == name) {
    return;
  }
  char word[32];
  next_word(suffix + 1, word, sizeof(word), "_");
  const char *arguments = arguments_of(signatures, plain, (size_t)(suffix - plain));
  for (size_t i = 0; arguments != NULL && i < sizeof(words) / sizeof(words[0]); i++) {
    if (strcmp(word, words[i]) == 0) {
      add_target(name, address, arguments);
    }
  }
}

/* _ZGVdN4vv_pow: N lanes in registers of kind d, two vectors. */
static void
add_vector(const char *name, uint64_t address)
{
  if (strncmp(name, "_ZGV", 4) != 0 || name[5] != 'N') {
    return;
  }
  const char *kinds = name + 6 + strspn(name + 6, "0123456789");
  size_t vectors = strspn(kinds, "v");
  if (kinds[vectors] == '_' && vectors <= 2 && strstr(kinds, "sincos") == NULL) {
    add_target(name, address, vectors == 1 ? ".V" : ".VV");
  }
}

static void
add_library(void *library, const struct library *entry, const struct loaded *module)
{
  for (const struct signature *s = entry->signatures; s->arguments != NULL; s++) {
    char word[64];
    if (s->names == NULL) {
      add_sequence(library, s->arguments);
    }
    for (const char *at = s->names; at != NULL;) {
      at = next_word(at, word, sizeof(word), " ");
      add_target(word, (uint64_t)dlsym(library, word), s->arguments);
    }
  }
  for (size_t i = 0; i < module->plan->count; i++) {
    const struct ct_planned *f = &module->plan->functions[i];
    if (f->name == NULL) {
      continue;
    }
    add_vector(f->name, module->base + f->address);
    add_variant(entry->signatures, f->name, module->base + f->address);
  }
}

static int
note_module(struct dl_phdr_info *info, size_t size, void *context)
{
  struct ct_diag diag;
  struct loaded *module = &modules[module_count];
  if (info->dlpi_name[0] == 0 || module_count == MODULES_MAX || access(info->dlpi_name, R_OK) != 0) {
    return 0;
  }
  snprintf(module->path, sizeof(module->path), "%s", info->dlpi_name);
  module->base = info->dlpi_addr;
  module_count += ct_plan_create(module->path, &module->plan, &diag) == CT_OK;
  return 0;
}

static const struct loaded *
module_named(const char *name)
{
  for (size_t i = 0; i < module_count; i++) {
    const char *slash = strrchr(modules[i].path, '/');
    if (slash != NULL && strcmp(slash + 1, name) == 0) {
      return &modules[i];
    }
  }
  return NULL;
}

static int
prepare(void)
{
  for (const struct library *l = libraries; l->path != NULL; l++) {
    (void)dlopen(l->path, RTLD_NOW);
  }
  dl_iterate_phdr(note_module, NULL);
  for (const struct library *l = libraries; l->path != NULL; l++) {
    void *library = dlopen(l->path, RTLD_NOW | RTLD_NOLOAD);
    const struct loaded *module = module_named(l->path);
    if (library != NULL && module != NULL) {
      add_library(library, l, module);
    }
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  data = mmap((void *)DATA_AT, DATA_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
  void *stack = mmap((void *)STACK_AT, STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return data == (uint8_t *)DATA_AT && stack == (void *)STACK_AT && shared != MAP_FAILED && target_count != 0 ? 0 : -1;
}

/* ---- arguments ---- */

struct builder {
  struct rng *rng;
  struct machine *machine;
  unsigned general, vectors;
  uint8_t *stack; /* the next argument in memory */
};

static int
compare_bytes(const void *a, const void *b)
{
  return *(const uint8_t *)a - *(const uint8_t *)b;
}

static void
put_general(struct builder *b, uint64_t value)
{
  static const uint8_t order[] = {RDI, RSI, RDX, RCX, R8, R9};
  if (b->general < 6) {
    b->machine->reg[order[b->general++]] = value;
    return;
  }
  memcpy(b->stack, &value, 8);
  b->stack += 8;
}

/* A place of room bytes; often ends where nothing is mapped. Each letter has its own part of the buffers. */
static uint8_t *
place(struct builder *b, unsigned part, size_t room)
{
  uint8_t *start = data + part * (DATA_BYTES / 8);
  if (part == 7 && rng_chance(b->rng, 50)) {
    return data + DATA_BYTES - room;
  }
  return start + rng_below(b->rng, DATA_BYTES / 8 - room);
}

static size_t
length(struct builder *b, size_t max)
{
  return rng_chance(b->rng, 60)   ? rng_below(b->rng, 80)
         : rng_chance(b->rng, 70) ? rng_below(b->rng, 600)
                                  : rng_below(b->rng, max);
}

static uint64_t
put_string(struct builder *b, unsigned part, const char *alphabet, size_t max, size_t room)
{
  size_t bytes = length(b, max), letters = strlen(alphabet);
  uint8_t *at = place(b, part, bytes + 1 + room);
  for (size_t i = 0; i < bytes; i++) {
    at[i] = (uint8_t)alphabet[rng_below(b->rng, letters)];
  }
  at[bytes] = 0;
  return (uint64_t)at;
}

static uint64_t
put_number_text(struct builder *b)
{
  static const char *const formats[] = {"%.17g", "%.3e", "%a", "%.0f", " +%.6f", "0x%.0f", "-%.9gx"};
  double value = (double)(int64_t)rng_next(b->rng) / (double)(1ull << rng_below(b->rng, 64));
  char text[512];
  int bytes = snprintf(text, sizeof(text), formats[rng_below(b->rng, 7)], value);
  uint8_t *at = place(b, 7, (size_t)bytes + 1);
  memcpy(at, text, (size_t)bytes + 1);
  return (uint64_t)at;
}

static double
any_double(struct rng *rng)
{
  static const double special[] = {0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e300, -1e300, 5e-324, 1.0 / 0.0, -1.0 / 0.0};
  double value;
  uint64_t bits = rng_next(rng);
  switch (rng_below(rng, 8)) {
  case 0:
    return special[rng_below(rng, sizeof(special) / sizeof(special[0]))];
  case 1:
    memcpy(&value, &bits, sizeof(value));
    return value;
  case 2:
    return (double)(int64_t)(bits >> 40) - 8388608.0;
  default:
    return ((double)(int64_t)bits / 9.3e18) * (double)(1u << rng_below(rng, 12));
  }
}

static void
put_long_double(struct builder *b)
{
  long double value = any_double(b->rng);
  value += value * 1e-17L * (long double)rng_below(b->rng, 100);
  memset(b->stack, 0, 16);
  memcpy(b->stack, &value, 10);
  b->stack += 16;
}

static void
put_vector(struct builder *b, char letter)
{
  unsigned n = b->vectors++;
  uint8_t *low = machine_vector(b->machine, n, 0);
  double d = any_double(b->rng);
  float f[2] = {(float)any_double(b->rng), (float)any_double(b->rng)};
  switch (letter) {
  case 'D':
    memcpy(low, &d, 8);
    break;
  case 'F':
    memcpy(low, f, 4);
    break;
  case 'G':
    memcpy(low, f, 8);
    break;
  case 'Q': /* about 1: random bits in the fraction */
    low[15] = (uint8_t)(0x3f | (rng_next(b->rng) & 0x80));
    low[14] = (uint8_t)(0xf8 + rng_below(b->rng, 8));
    break;
  default: /* doubles and floats that are neither too large nor too small, whichever they are taken for */
    for (unsigned part = 0; part < machine_vector_parts(); part++) {
      for (unsigned i = 0; i < 16; i += 4) {
        machine_vector(b->machine, n, part)[i + 3] = (uint8_t)(0x3f + rng_below(b->rng, 2));
      }
    }
    break;
  }
}

static void
put_pointer(struct builder *b, char letter)
{
  static const char *const alphabets[] = {"ab", "abcdefghijklmnopqrstuvwxyz", "aAbB .,-\xe4\xff", "a"};
  static const char format[] = "%.*g|%La|%d|%s";
  const char *alphabet = alphabets[rng_below(b->rng, 4)];
  switch (letter) {
  case 'd':
    put_general(b, (uint64_t)place(b, 0, 2 * FRESH_MAX));
    break;
  case 's':
    put_general(b, (uint64_t)place(b, rng_chance(b->rng, 50) ? 7 : 1, FRESH_MAX));
    break;
  case 'S':
    put_general(b, put_string(b, rng_chance(b->rng, 50) ? 7 : 2, alphabet, FRESH_MAX, 0));
    break;
  case 'T':
    put_general(b, put_string(b, 3, alphabet, 1000, FRESH_MAX));
    break;
  case 'W': {
    size_t count = length(b, 1000);
    uint8_t *at = (uint8_t *)((uint64_t)place(b, 4, 4 * count + 8) & ~3ull);
    for (size_t i = 0; i < count; i++) {
      memcpy(at + 4 * i, &(uint32_t){(uint32_t)(97 + rng_below(b->rng, 3))}, 4);
    }
    memset(at + 4 * count, 0, 4);
    put_general(b, (uint64_t)at);
    break;
  }
  case 'p':
    put_general(b, ((uint64_t)place(b, 5, 256) & ~15ull));
    break;
  case 'P': {
    uint8_t *at = (uint8_t *)((uint64_t)place(b, 5, 256) & ~15ull);
    memcpy(at, &(uint64_t){FRESH_MAX}, 8);
    put_general(b, (uint64_t)at);
    break;
  }
  case 'k':
    put_general(b, (uint64_t)data + 6 * (DATA_BYTES / 8));
    break;
  case 'f':
    memcpy(data + 6 * (DATA_BYTES / 8), format, sizeof(format));
    memcpy(data + 6 * (DATA_BYTES / 8) + 2, "09", 2);
    data[6 * (DATA_BYTES / 8) + 3] = (uint8_t)('0' + rng_below(b->rng, 10));
    put_general(b, (uint64_t)data + 6 * (DATA_BYTES / 8));
    break;
  default: /* q */
    put_general(b, (uint64_t)compare_bytes);
  }
}

static void
put_argument(struct builder *b, char letter)
{
  static const uint8_t sizes[] = {1, 2, 4, 8, 12, 16, 40};
  switch (letter) {
  case 'n':
    put_general(b, length(b, FRESH_MAX));
    break;
  case 'm':
    put_general(b, rng_below(b->rng, 120));
    break;
  case 'c':
    put_general(b, rng_below(b->rng, 256));
    break;
  case 'i':
    put_general(b, rng_next(b->rng) >> rng_below(b->rng, 64) | 1);
    break;
  case 'b':
    put_general(b, rng_chance(b->rng, 50) ? 10 : 2 + rng_below(b->rng, 35));
    break;
  case 'z':
    put_general(b, sizes[rng_below(b->rng, sizeof(sizes))]);
    break;
  case 'B':
    put_general(b, 128 + 64 * rng_below(b->rng, 3));
    break;
  case 'E':
    put_general(b, rng_below(b->rng, 2));
    break;
  case '0':
    put_general(b, 0);
    break;
  case 'x':
    put_general(b, rng_next(b->rng) >> rng_below(b->rng, 64));
    put_general(b, rng_next(b->rng) >> rng_below(b->rng, 64) | 1);
    break;
  case 'N':
    put_general(b, put_number_text(b));
    break;
  case 'L':
    put_long_double(b);
    break;
  case 'D':
  case 'F':
  case 'G':
  case 'Q':
  case 'V':
    put_vector(b, letter);
    break;
  default:
    put_pointer(b, letter);
  }
}

/* A state as callers have: everything random, but what the calling convention asks for. */
static void
make_call(struct rng *rng, const char *arguments, struct machine *machine)
{
  struct builder b = {.rng = rng, .machine = machine};
  machine_random(machine, rng);
  machine->flags = 0;
  memcpy(machine->extended, "\x7f\x03\0\0\0", 5); /* x87: no register in use */
  memcpy(machine->extended + 24, &(uint32_t){0x1f80 | (rng_chance(rng, 20) ? rng_below(rng, 4) << 13 : 0)}, 4);
  machine->reg[RSP] = STACK_AT + STACK_BYTES - ARGUMENTS_ON_STACK;
  b.stack = (uint8_t *)machine->reg[RSP];
  memset(b.stack, 0, ARGUMENTS_ON_STACK);
  for (arguments += *arguments == '=' || *arguments == '.'; *arguments != 0 && *arguments != ';'; arguments++) {
    put_argument(&b, *arguments);
  }
  machine->reg[RAX] = b.vectors; /* as for variable arguments */
}

/* ---- the children ---- */

static uint64_t
sum_of_data(void)
{
  uint64_t sum = 0;
  for (size_t i = 0; i < DATA_BYTES; i += 8) {
    uint64_t word;
    memcpy(&word, data + i, 8);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
    sum ^= sum >> 29;
  }
  return sum;
}

static const struct target *
target_of(uint64_t seed, uint64_t number)
{
  struct rng rng = rng_of(seed, number);
  return &targets[rng_below(&rng, target_count)];
}

static void
make_case(uint64_t seed, uint64_t number, bool hooked, struct call_outcome *out)
{
  struct rng rng = rng_of(seed, number);
  const struct target *target = &targets[rng_below(&rng, target_count)];
  memset(out, 0, sizeof(*out));
  rng_fill(&rng, data, DATA_BYTES);
  for (size_t step = 0; step < target->steps; step++) {
    make_call(&rng, target->arguments[step], &out->begin[step]);
    agency_ready(&agency, STACK_AT, STACK_BYTES, true);
    machine_call(&out->begin[step], target->address[step], &out->machine[step], &out->ending[step]);
    if (hooked) {
      shared->events += (agency.control->cursor - (uint64_t)agency.segment) / CT_EVENT_BYTES;
    }
    if (out->ending[step].signal != 0) {
      break;
    }
  }
  out->data = sum_of_data();
}

static struct agency_module installed[MODULES_MAX];

/* Patches all libraries of this process, which is in use of some of them. */
static bool
hook_everything(void)
{
  char text[512];
  if (agency_set_up(&agency, STACK_AT, STACK_BYTES, STORE_DELTA) != 0) {
    return false;
  }
  extern const char __executable_start[], etext[];
  for (uint64_t at = (uint64_t)__executable_start >> CT_TABLE_SHIFT; at <= (uint64_t)etext >> CT_TABLE_SHIFT; at++) {
    agency.table[at] = CT_TEXT_MODULE; /* our own code calls, and is called back */
  }
  for (size_t i = 0; i < module_count; i++) {
    if (agency_install(&agency, &installed[i], modules[i].plan, modules[i].base, text, sizeof(text)) != 0) {
      printf("     %s\n", text);
      return false;
    }
    shared->hooked += installed[i].installed.hooked;
  }
  return true;
}

/* The libraries are as they were. The process without hooks has had them, so that the two have the same heap. */
static bool
unhook_everything(void)
{
  for (size_t i = 0; i < module_count; i++) {
    const struct ct_installed *in = &installed[i].installed;
    for (size_t p = 0; p < in->patch_count; p++) {
      const struct ct_patch *patch = &in->patches[p];
      const uint8_t *bytes = ct_elf_bytes(modules[i].plan->elf, patch->address - in->base, patch->length);
      if (bytes == NULL || ct_process_write(&agency.process, patch->address, bytes, patch->length) != 0) {
        return false;
      }
    }
  }
  return true;
}

/* A byte comes for each batch, and one goes back. */
static void
child(uint64_t seed, int who, int in, int out)
{
  char byte;
  alarm(600);
  if (!hook_everything() || (who == 0 && !unhook_everything())) {
    _exit(3);
  }
  while (read(in, &byte, 1) == 1 && shared->batch_from != shared->batch_to) {
    for (uint64_t number = shared->batch_from; number < shared->batch_to; number++) {
      shared->at[who] = number;
      make_case(seed, number, who == 1, &shared->outcome[who][number - shared->batch_from]);
    }
    if (write(out, &byte, 1) != 1) {
      break;
    }
  }
  _exit(0);
}

/* ---- the parent ---- */

static bool
outcome_differs(const struct target *target, const struct call_outcome *a, const struct call_outcome *b, char *text,
                size_t size)
{
  for (size_t step = 0; step < target->steps; step++) {
    const struct ending *x = &a->ending[step], *y = &b->ending[step];
    if (x->signal != y->signal || x->code != y->code || x->address != y->address) {
      snprintf(text, size, "call %zu ends with signal %d at %#llx, not %d at %#llx", step + 1, y->signal,
               (unsigned long long)y->address, x->signal, (unsigned long long)x->address);
      return true;
    }
    if (x->signal != 0) {
      return false; /* in the middle of something: registers may hold what the stack has from before */
    }
    size_t used = (size_t)snprintf(text, size, "call %zu: ", step + 1);
    const char *arguments = target->arguments[step];
    unsigned results = arguments[0] == '=' ? 2 : arguments[0] == '.' ? 0 : 1;
    unsigned words = strcspn(arguments, "V;") < strcspn(arguments, ";")   ? 8
                     : strcspn(arguments, "Q;") < strcspn(arguments, ";") ? 2
                                                                          : 1;
    if (machine_results_differ(&a->begin[step], &a->machine[step], &b->machine[step], results, words, text + used,
                               size - used)) {
      return true;
    }
  }
  snprintf(text, size, "memory differs");
  return a->data != b->data;
}

static int64_t
compare_batch(uint64_t seed, struct calls_count *count)
{
  static char text[256];
  static int shown;
  int64_t bad = 0;
  for (uint64_t number = shared->batch_from; number < shared->batch_to; number++) {
    const struct target *target = target_of(seed, number);
    const struct call_outcome *plain = &shared->outcome[0][number - shared->batch_from];
    const struct call_outcome *hooked = &shared->outcome[1][number - shared->batch_from];
    if (!outcome_differs(target, plain, hooked, text, sizeof(text))) {
      count->same++;
      count->faults += plain->ending[0].signal != 0;
      continue;
    }
    bad++;
    if (shown++ < SHOWN_MAX) {
      printf("FAIL calls --seed %llu --case %llu: %s (%s): %s\n", (unsigned long long)seed, (unsigned long long)number,
             target->name, target->arguments[0], text);
    }
  }
  return bad;
}

struct worker {
  pid_t pid;
  int to, from; /* pipes */
};

static bool
start(struct worker *worker, uint64_t seed, int who)
{
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    return false;
  }
  fflush(stdout);
  worker->pid = fork();
  if (worker->pid == 0) {
    close(to[1]);
    close(from[0]);
    child(seed, who, to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  worker->to = to[1];
  worker->from = from[0];
  return worker->pid > 0;
}

/* Lets both make the batch; false when one of them is dead, and says so. */
static bool
make_batch(uint64_t seed, struct worker workers[2])
{
  char byte = 0;
  for (int who = 0; who < 2; who++) {
    (void)!write(workers[who].to, &byte, 1);
  }
  for (int who = 0; who < 2; who++) {
    int status = 0;
    if (read(workers[who].from, &byte, 1) == 1) {
      continue;
    }
    waitpid(workers[who].pid, &status, 0);
    if (shared->at[who] == HOOKING) {
      printf("FAIL calls: a process ended with status %#x while its libraries were hooked\n", status);
      return false;
    }
    printf("FAIL calls --seed %llu --case %llu: %s: the process %s hooks ended with status %#x\n",
           (unsigned long long)seed, (unsigned long long)shared->at[who], target_of(seed, shared->at[who])->name,
           who == 1 ? "with" : "without", status);
    return false;
  }
  return true;
}

static double
now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int64_t
calls_run(uint64_t seed, uint64_t from, uint64_t to, double seconds, struct calls_count *count)
{
  struct worker workers[2];
  int64_t bad = 0;
  double begin = now();
  if (prepare() != 0) {
    return -1;
  }
  count->functions = target_count;
  signal(SIGPIPE, SIG_IGN);
  shared->at[0] = shared->at[1] = HOOKING;
  if (!start(&workers[0], seed, 0) || !start(&workers[1], seed, 1)) {
    return -1;
  }
  for (uint64_t at = from; seconds != 0 ? now() - begin < seconds : at < to; at += BATCH) {
    shared->batch_from = at;
    shared->batch_to = seconds == 0 && to - at < BATCH ? to : at + BATCH;
    if (!make_batch(seed, workers)) {
      bad++;
      break;
    }
    bad += compare_batch(seed, count);
  }
  shared->batch_from = shared->batch_to; /* nothing: the end */
  for (int who = 0; who < 2; who++) {
    (void)!write(workers[who].to, "", 1);
    waitpid(workers[who].pid, NULL, 0);
    close(workers[who].to);
    close(workers[who].from);
  }
  count->hooked = shared->hooked / 2;
  count->events = shared->events;
  return bad;
}
