/* SPDX-License-Identifier: MIT */
/*
 * Plans out of the cache. The input is a list of changes to a good file: offset (2 bytes), size (1), value (up to 8).
 * The checksum is put right, so that the checks after it are what is tested. What is accepted must be fit to be
 * installed.
 */
#include "fuzz.h"

#include "base/crc32c.h"
#include "plan/plan_file.h"
#include "x86/trampoline.h"

#include <elf.h>

enum { TEXT = 0x1000, CODE_BYTES = 0x2000, CHECKSUM_AT = 12, CHECKSUM_FROM = 16 };

/* A file of one segment at TEXT, full of nops. */
static struct ct_elf *
make_elf(void)
{
  static uint8_t bytes[0x1000 + CODE_BYTES];
  static const struct ct_elf_options layout = {.layout_only = true};
  struct ct_elf *elf;
  Elf64_Ehdr head = {.e_ident = ELFMAG "\2\1\1",
                     .e_type = ET_DYN,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_phoff = sizeof(head),
                     .e_ehsize = sizeof(head),
                     .e_phentsize = sizeof(Elf64_Phdr),
                     .e_phnum = 1};
  Elf64_Phdr segment = {.p_type = PT_LOAD,
                        .p_flags = PF_R | PF_X,
                        .p_offset = 0x1000,
                        .p_vaddr = TEXT,
                        .p_filesz = CODE_BYTES,
                        .p_memsz = CODE_BYTES};
  memcpy(bytes, &head, sizeof(head));
  memcpy(bytes + sizeof(head), &segment, sizeof(segment));
  memset(bytes + 0x1000, 0x90, CODE_BYTES);
  CHECK(ct_elf_open_bytes(bytes, sizeof(bytes), NULL, &layout, &elf, NULL) == 0);
  return elf;
}

static uint8_t *
make_file(const struct ct_elf *elf, const struct ct_plan_key *key, size_t *size)
{
  struct ct_window five = {5, 5, {0, 1, 2, 3, 4, 5}, 0}, two = {2, 1, {0, 2}, 0}, ten = {10, 2, {0, 5, 10}, 0};
  struct ct_planned functions[] = {
      {.address = TEXT, .size = 32, .name = "one", .tactic = CT_TACTIC_JUMP, .patch_bytes = 5, .window = five},
      {.address = TEXT + 64,
       .size = 32,
       .tactic = CT_TACTIC_ENDBR,
       .patch_offset = 4,
       .patch_bytes = 5,
       .window = five},
      {.address = TEXT + 128, .name = "short", .tactic = CT_TACTIC_SHORT, .patch_bytes = 2, .window = two},
      {.address = TEXT + 256,
       .name = "evict",
       .tactic = CT_TACTIC_EVICT,
       .patch_bytes = 2,
       .springboard = 1,
       .window = two},
      {.address = TEXT + 512, .name = "none", .refusal = CT_REFUSED_TOO_SHORT},
  };
  struct ct_springboard springboard[] = {{.relay = TEXT + 160},
                                         {.relay = TEXT + 291, .evicted = TEXT + 286, .window = ten}};
  struct ct_foreign_run foreign[] = {{TEXT + 0x1000, TEXT + 0x1800}};
  struct ct_plan_alias aliases[] = {{TEXT, "first"}, {TEXT + 256, "other"}};
  struct ct_plan plan = {.elf = (struct ct_elf *)elf,
                         .functions = functions,
                         .count = sizeof(functions) / sizeof(functions[0]),
                         .springboard = springboard,
                         .springboard_count = 2,
                         .foreign = foreign,
                         .foreign_count = 1,
                         .r_debug = TEXT + 8,
                         .mapping = aliases,
                         .aliases = aliases,
                         .alias_count = 2};
  uint8_t *bytes = ct_plan_encode(&plan, key, "/some/file", size);
  CHECK(bytes != NULL);
  return bytes;
}

static void
check_hook(const struct ct_plan *plan, const struct ct_planned *f)
{
  uint8_t buffer[CT_TRAMPOLINE_BYTES_MAX];
  uint64_t patched = f->address + f->patch_offset;
  const uint8_t *code = ct_elf_bytes(plan->elf, patched, f->window.length);
  struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x100000};
  struct ct_hook_desc desc;
  struct ct_trampoline_spec spec = {.fn = 1,
                                    .mode = f->mode,
                                    .callout = f->callout,
                                    .store_delta = -(1ll << 45),
                                    .function = patched,
                                    .head = 0x100000,
                                    .desc = 0x100000,
                                    .code = code,
                                    .window = &f->window};
  CHECK(code != NULL && f->patch_bytes >= 1 && f->patch_bytes <= CT_JUMP_BYTES);
  ct_trampoline_emit(&spec, &out, &desc);
  if (f->tactic == CT_TACTIC_SHORT || f->tactic == CT_TACTIC_EVICT) {
    CHECK(f->springboard < plan->springboard_count);
    const struct ct_springboard *springboard = &plan->springboard[f->springboard];
    CHECK(ct_elf_bytes(plan->elf, springboard->relay, CT_JUMP_BYTES) != NULL);
    CHECK(f->tactic == CT_TACTIC_SHORT ||
          ct_elf_bytes(plan->elf, springboard->evicted, springboard->window.length) != NULL);
  }
}

static void
check_plan(const struct ct_plan *plan)
{
  size_t hooked = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *f = &plan->functions[i];
    const char *alias;
    CHECK(i == 0 || plan->functions[i - 1].address < f->address);
    CHECK(f->refusal < CT_REFUSED_COUNT && ct_refusal_text(f->refusal) != NULL);
    CHECK(f->name == NULL || strlen(f->name) < 100000);
    for (size_t n = 0; (alias = ct_plan_alias(plan, f, n)) != NULL; n++) {
      CHECK(strlen(alias) < 100000);
    }
    if (f->refusal == CT_REFUSED_NOT) {
      hooked++;
      check_hook(plan, f);
    }
  }
  CHECK(plan->hooked == hooked);
  for (size_t i = 0; i < plan->foreign_count; i++) {
    CHECK(plan->foreign[i].start < plan->foreign[i].end && plan->foreign[i].end <= TEXT + CODE_BYTES);
  }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static struct ct_elf *elf;
  static struct ct_plan_key key = {.build_id = "00112233", .file_bytes = 77};
  static uint8_t *good;
  static size_t good_bytes;
  if (elf == NULL) {
    elf = make_elf();
    good = make_file(elf, &key, &good_bytes);
  }
  struct input input = {data, data + size};
  uint8_t *bytes = malloc(good_bytes); /* aligned to 16 */
  CHECK(bytes != NULL);
  memcpy(bytes, good, good_bytes);
  while (input.at < input.end) {
    size_t at = input_number(&input, 2) % good_bytes, count = 1 + input_number(&input, 1) % 8;
    uint64_t value = input_number(&input, count);
    memcpy(bytes + at, &value, count < good_bytes - at ? count : good_bytes - at);
  }
  uint32_t crc = ct_crc32c(0, bytes + CHECKSUM_FROM, good_bytes - CHECKSUM_FROM);
  memcpy(bytes + CHECKSUM_AT, &crc, sizeof(crc));
  struct ct_plan plan = {.elf = elf, .mapping = bytes, .mapping_bytes = good_bytes};
  struct ct_plan_file_info info;
  ct_plan_file_info(bytes, good_bytes, &info);
  int code = ct_plan_decode(bytes, good_bytes, &key, &plan);
  CHECK(code == 0 || code == CT_EFORMAT || code == CT_ENOENT);
  CHECK(size != 0 || code == 0); /* unchanged it is good */
  if (code == 0) {
    check_plan(&plan);
  }
  free(bytes);
  return 0;
}
