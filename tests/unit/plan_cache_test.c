/* SPDX-License-Identifier: MIT */
/*
 * The analysis cache: what comes out is what was planned; what has changed is planned anew; what is damaged is found
 * out, and made-up files that carry a right checksum do no harm; whose directory is used; what goes when it is full.
 * The module is a copy of this program, which has a build-id.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "folder.h"
#include "plan/cache.h"
#include "plan/plan_file.h"
#include "rounds.h"
#include "target/elf.h"

/* Of plan_file.c: where the checksum lies, and from where on it counts. */
enum { CHECKSUM_AT = 12, CHECKSUM_FROM = 16 };

static char module[128], directory[128];

static struct ct_cache *
open_cache(void)
{
  struct ct_diag diag = {""};
  struct ct_cache *cache = ct_cache_open(directory, &diag);
  if (cache == NULL) {
    fail_msg("%s", diag.text);
  }
  return cache;
}

/* Plans the module with a cache of its own, stores, and returns what happened. */
static struct ct_cache_stats
plan_once(struct ct_plan **out)
{
  struct ct_cache *cache = open_cache();
  struct ct_diag diag = {""};
  struct ct_plan *plan;
  assert_int_equal(ct_cache_plan(cache, module, &plan, &diag), 0);
  while (ct_cache_store(cache)) {
  }
  struct ct_cache_stats stats = ct_cache_stats(cache);
  ct_cache_close(cache);
  if (out != NULL) {
    *out = plan;
  } else {
    ct_plan_free(plan);
  }
  return stats;
}

static void
same_text(const char *a, const char *b)
{
  assert_int_equal(a == NULL, b == NULL);
  if (a != NULL) {
    assert_string_equal(a, b);
  }
}

static void
same_plan(const struct ct_plan *a, const struct ct_plan *b)
{
  assert_int_equal(a->count, b->count);
  assert_int_equal(a->hooked, b->hooked);
  assert_int_equal(a->springboard_count, b->springboard_count);
  assert_int_equal(a->foreign_count, b->foreign_count);
  assert_int_equal(a->uses_gs, b->uses_gs);
  assert_int_equal(a->r_debug, b->r_debug);
  assert_memory_equal(a->refused, b->refused, sizeof(a->refused));
  assert_string_equal(a->path, b->path);
  assert_string_equal(ct_elf_build_id(a->elf), ct_elf_build_id(b->elf));
  same_text(ct_elf_soname(a->elf), ct_elf_soname(b->elf));
  for (size_t i = 0; i < a->count; i++) {
    struct ct_planned one = a->functions[i], other = b->functions[i];
    same_text(one.name, other.name);
    one.name = other.name = NULL;
    assert_memory_equal(&one, &other, sizeof(one));
    const char *alias;
    size_t n = 0;
    do {
      alias = ct_plan_alias(a, &a->functions[i], n);
      same_text(alias, ct_plan_alias(b, &b->functions[i], n++));
    } while (alias != NULL);
  }
  if (a->springboard_count != 0) {
    assert_memory_equal(a->springboard, b->springboard, a->springboard_count * sizeof(*a->springboard));
  }
  if (a->foreign_count != 0) {
    assert_memory_equal(a->foreign, b->foreign, a->foreign_count * sizeof(*a->foreign));
  }
  const struct ct_elf_segment *segments, *others;
  size_t count = ct_elf_segments(a->elf, &segments);
  assert_int_equal(count, ct_elf_segments(b->elf, &others));
  assert_memory_equal(segments, others, count * sizeof(*segments));
}

/* The only plan in the directory. */
static void
stored_path(char path[512])
{
  DIR *listing = opendir(directory);
  const struct dirent *item;
  int found = 0;
  assert_non_null(listing);
  while ((item = readdir(listing)) != NULL) {
    if (strstr(item->d_name, ".plan") != NULL) {
      snprintf(path, 512, "%s/%s", directory, item->d_name);
      found++;
    }
  }
  closedir(listing);
  assert_int_equal(found, 1);
}

static uint8_t *
read_whole(const char *path, size_t *size)
{
  struct stat file;
  int fd = open(path, O_RDONLY);
  assert_true(fd >= 0 && fstat(fd, &file) == 0);
  uint8_t *bytes = malloc((size_t)file.st_size);
  assert_int_equal(read(fd, bytes, (size_t)file.st_size), file.st_size);
  close(fd);
  *size = (size_t)file.st_size;
  return bytes;
}

static void
write_whole(const char *path, const uint8_t *bytes, size_t size)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, bytes, size), size);
  close(fd);
}

static int
set_up(void **state)
{
  (void)state;
  snprintf(folder, sizeof(folder), "/tmp/contrail-cache-XXXXXX");
  if (mkdtemp(folder) == NULL) {
    return -1;
  }
  snprintf(module, sizeof(module), "%s/module", folder);
  snprintf(directory, sizeof(directory), "%s/cache", folder);
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length < 0) {
    return -1;
  }
  self[length] = '\0';
  return shell("cp %s module", self);
}

static int
tear_down(void **state)
{
  (void)state;
  char command[192];
  snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", folder, folder);
  return system(command);
}

static void
test_same_again(void **state)
{
  (void)state;
  struct ct_plan *first, *second;
  struct ct_cache_stats stats = plan_once(&first);
  assert_int_equal(stats.misses, 1);
  assert_int_equal(stats.hits, 0);
  assert_int_equal(stats.stored, 1);
  assert_null(first->mapping);
  stats = plan_once(&second);
  assert_int_equal(stats.misses, 0);
  assert_int_equal(stats.hits, 1);
  assert_int_equal(stats.stored, 0);
  assert_non_null(second->mapping);
  assert_true(first->hooked > 100);
  same_plan(first, second);
  ct_plan_free(first);
  ct_plan_free(second);
  struct stat file;
  char path[512];
  stored_path(path);
  assert_int_equal(stat(path, &file), 0);
  assert_int_equal(file.st_mode & 0777, 0600);
  assert_int_equal(stat(directory, &file), 0);
  assert_int_equal(file.st_mode & 0777, 0700);
}

static void
test_libc_has_aliases(void **state)
{
  (void)state;
  struct ct_diag diag = {""};
  struct ct_plan *plans[2];
  for (int i = 0; i < 2; i++) {
    struct ct_cache *cache = open_cache();
    assert_int_equal(ct_cache_plan(cache, "/lib/x86_64-linux-gnu/libc.so.6", &plans[i], &diag), 0);
    ct_cache_store(cache);
    ct_cache_close(cache);
  }
  assert_non_null(plans[1]->mapping);
  assert_true(plans[1]->alias_count > 100);
  same_plan(plans[0], plans[1]);
  ct_plan_free(plans[0]);
  ct_plan_free(plans[1]);
}

/* What a recording makes of a plan is not kept. Functions of one byte, close together, fit nothing but int3. */
static void
test_filter_result_is_not_kept(void **state)
{
  (void)state;
  struct ct_diag diag = {""};
  if (shell(
          "{ echo '.section .note.GNU-stack, \"\", @progbits'; echo .text; for i in 1 2 3 4 5 6 7 8 9; do "
          "printf '.type f%%d, @function\\n.globl f%%d\\nf%%d:\\n.cfi_startproc\\nret\\n.cfi_endproc\\n"
          ".size f%%d, 1\\n' $i $i $i $i; done; } >tiny.s && gcc -shared -nostdlib -Wl,--build-id -o module tiny.s") !=
      0) {
    skip(); /* no gcc */
  }
  struct ct_plan *plans[3];
  size_t used = 0;
  for (int i = 0; i < 3; i++) {
    struct ct_cache *cache = open_cache();
    assert_int_equal(ct_cache_plan(cache, module, &plans[i], &diag), 0);
    if (i == 0) {
      ct_plan_use_int3(plans[i]);
    }
    ct_cache_store(cache);
    ct_cache_close(cache);
  }
  assert_non_null(plans[1]->mapping);
  same_plan(plans[1], plans[2]);
  for (size_t i = 0; i < plans[0]->count; i++) {
    if (plans[0]->functions[i].tactic == CT_TACTIC_INT3) {
      assert_int_not_equal(plans[1]->functions[i].refusal, CT_REFUSED_NOT);
      used++;
    }
  }
  assert_true(used >= 4);
  assert_int_equal(plans[0]->hooked, plans[1]->hooked + used);
  ct_plan_use_int3(plans[1]);
  same_plan(plans[0], plans[1]);
  for (int i = 0; i < 3; i++) {
    ct_plan_free(plans[i]);
  }
}

static void
test_changes(void **state)
{
  (void)state;
  plan_once(NULL);
  assert_int_equal(plan_once(NULL).hits, 1);
  assert_int_equal(shell("touch -d '2001-02-03 04:05:06.789' module"), 0);
  assert_int_equal(plan_once(NULL).misses, 1);
  assert_int_equal(plan_once(NULL).hits, 1);
  assert_int_equal(shell("touch -d '2001-02-03 04:05:06.790' module"), 0);
  assert_int_equal(plan_once(NULL).misses, 1);
  if (shell("objcopy --only-keep-debug module module.debug && objcopy --strip-all --add-gnu-debuglink=module.debug "
            "module "
            "&& touch -d 2001-02-03 module") != 0) {
    skip(); /* no objcopy */
  }
  assert_int_equal(plan_once(NULL).misses, 1);
  assert_int_equal(plan_once(NULL).hits, 1);
  assert_int_equal(shell("mv module.debug away"), 0); /* the debug file goes, and comes back */
  assert_int_equal(plan_once(NULL).misses, 1);
  assert_int_equal(plan_once(NULL).hits, 1);
  assert_int_equal(shell("mkdir .debug && mv away .debug/module.debug"), 0); /* elsewhere */
  assert_int_equal(plan_once(NULL).misses, 1);
  assert_int_equal(plan_once(NULL).hits, 1);
}

static void
test_no_build_id(void **state)
{
  (void)state;
  if (shell("objcopy --remove-section .note.gnu.build-id module") != 0) {
    skip();
  }
  struct ct_plan *first, *again;
  assert_int_equal(plan_once(&first).stored, 1);
  struct ct_cache_stats stats = plan_once(&again);
  assert_int_equal(stats.hits, 1);
  assert_int_equal(stats.uncacheable, 0);
  same_plan(first, again);
  ct_plan_free(first);
  ct_plan_free(again);
  assert_int_equal(shell("touch -d 2001-02-03 module && cp module copy && mv copy module"), 0);
  assert_int_equal(plan_once(NULL).hits, 1); /* when, where and what for are all the same to it */
  struct stat file;
  size_t size;
  assert_int_equal(stat(module, &file), 0);
  uint8_t *bytes = read_whole(module, &size);
  const size_t unused[] = {EI_NIDENT - 1, size / 2, size - 1}; /* or of no consequence: the module is not run */
  for (size_t i = 0; i < sizeof(unused) / sizeof(unused[0]); i++) {
    bytes[unused[i]] ^= 1;
    write_whole(module, bytes, size);
    assert_int_equal(utimensat(AT_FDCWD, module, (struct timespec[]){file.st_atim, file.st_mtim}, 0), 0);
    assert_int_equal(plan_once(NULL).misses, 1);
    assert_int_equal(plan_once(NULL).hits, 1);
  }
  free(bytes);
}

/* What cannot be read has no key. */
static void
test_unreadable(void **state)
{
  (void)state;
  struct ct_plan_key key;
  struct ct_elf *elf;
  struct ct_diag diag = {""};
  if (shell("objcopy --remove-section .note.gnu.build-id module") != 0) {
    skip();
  }
  assert_int_equal(ct_elf_open(module, &elf, &diag), 0);
  int fd = open("/", O_RDONLY | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(ct_plan_key_make(fd, elf, &key), CT_EIO);
  close(fd);
  assert_int_not_equal(ct_plan_key_make(fd, elf, &key), 0);
  ct_elf_close(elf);
}

/* Every byte of the head, many of the rest, and other lengths. */
static void
test_damage(void **state)
{
  (void)state;
  char path[512];
  size_t size;
  struct ct_plan *first, *again;
  plan_once(&first);
  stored_path(path);
  uint8_t *bytes = read_whole(path, &size);
  for (size_t at = 0; at < size; at += at < 700 ? 7 : size / 40) {
    bytes[at] ^= 0x40;
    write_whole(path, bytes, size);
    struct ct_cache_stats stats = plan_once(&again);
    assert_int_equal(stats.hits, 0);
    assert_int_equal(stats.damaged, 1);
    assert_int_equal(stats.stored, 1);
    same_plan(first, again);
    ct_plan_free(again);
    bytes[at] ^= 0x40;
  }
  const size_t lengths[] = {1, 100, size / 2, size - 1};
  for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
    write_whole(path, bytes, lengths[i]);
    assert_int_equal(plan_once(NULL).damaged, 1);
  }
  assert_int_equal(plan_once(NULL).hits, 1);
  free(bytes);
  ct_plan_free(first);
}

/* What a decoded plan must be, whoever made the bytes. */
static void
check_plan(const struct ct_plan *plan)
{
  size_t hooked = 0;
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    assert_true(i == 0 || planned->address > plan->functions[i - 1].address);
    assert_true(planned->refusal < CT_REFUSED_COUNT);
    hooked += planned->refusal == CT_REFUSED_NOT;
    if (planned->name != NULL) {
      assert_true(strlen(planned->name) < plan->mapping_bytes);
    }
    const char *alias = ct_plan_alias(plan, planned, 0);
    assert_true(alias == NULL || strlen(alias) < plan->mapping_bytes);
    if (planned->refusal == CT_REFUSED_NOT) {
      assert_true(planned->tactic != CT_TACTIC_NONE && planned->tactic < CT_TACTIC_COUNT);
      assert_in_range(planned->window.count, 1, CT_RELOCATED_MAX);
      assert_int_equal(planned->window.offset[planned->window.count], planned->window.length);
      assert_true(planned->tactic != CT_TACTIC_SHORT || planned->springboard < plan->springboard_count);
    }
  }
  assert_int_equal(plan->hooked, hooked);
}

static void
test_made_up(void **state)
{
  (void)state;
  struct ct_plan *plan;
  struct ct_plan_key key;
  size_t size, accepted = 0, refused = 0;
  struct ct_diag diag = {""};
  assert_int_equal(ct_plan_create("/lib/x86_64-linux-gnu/libc.so.6", &plan, &diag), 0);
  int fd = open(plan->path, O_RDONLY | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(ct_plan_key_make(fd, plan->elf, &key), 0);
  close(fd);
  uint8_t *good = ct_plan_encode(plan, &key, plan->path, &size);
  uint8_t *bytes = malloc(size);
  srand(4711);
  for (int round = (int)rounds(1000, 3000); round > 0; round--) {
    memcpy(bytes, good, size);
    for (int changes = rand() % 4; changes >= 0; changes--) {
      size_t at = (size_t)rand() % (round % 3 == 0 ? 600 : size - 40000);
      uint64_t value = round % 2 == 0 ? (uint64_t)rand() % 256 : (uint64_t)rand() << 33 ^ (uint64_t)rand();
      memcpy(bytes + at, &value, round % 2 == 0 ? 1 : sizeof(value));
    }
    memcpy(bytes, good, CHECKSUM_AT); /* else it would not be looked at */
    uint32_t crc = ct_crc32c(0, bytes + CHECKSUM_FROM, size - CHECKSUM_FROM);
    memcpy(bytes + CHECKSUM_AT, &crc, sizeof(crc));
    struct ct_plan decoded = {.elf = plan->elf, .mapping = bytes, .mapping_bytes = size};
    int code = ct_plan_decode(bytes, size, &key, &decoded);
    assert_true(code == 0 || code == CT_EFORMAT || code == CT_ENOENT);
    if (code == 0) {
      check_plan(&decoded);
      accepted++;
    } else {
      refused++;
    }
  }
  assert_true(accepted > 100 && refused > 100);
  key.changed_ns++;
  struct ct_plan decoded = {.elf = plan->elf};
  assert_int_equal(ct_plan_decode(good, size, &key, &decoded), CT_ENOENT);
  assert_null(decoded.functions);
  free(bytes);
  free(good);
  ct_plan_free(plan);
}

static void
test_whose_directory(void **state)
{
  (void)state;
  struct ct_diag diag = {""};
  char path[160];
  struct ct_plan *plan;
  assert_int_equal(shell("mkdir real && ln -s real link && mkdir open && chmod 0775 open && touch file"), 0);
  static const char *const refused[] = {"link", "open", "file", "file/below", "missing/below"};
  for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
    snprintf(path, sizeof(path), "%s/%s", folder, refused[i]);
    assert_null(ct_cache_open(path, &diag));
    assert_true(diag.text[0] != '\0');
  }
  if (geteuid() == 0) {
    assert_int_equal(shell("mkdir other && chown 12345 other"), 0);
    snprintf(path, sizeof(path), "%s/other", folder);
    assert_null(ct_cache_open(path, &diag));
  }
  assert_int_equal(ct_cache_plan(NULL, module, &plan, &diag), 0); /* no cache is none */
  ct_plan_free(plan);
  assert_false(ct_cache_store(NULL));
  assert_null(ct_cache_path(NULL));
}

/* A link of somebody's in the place of a plan is not followed. */
static void
test_links(void **state)
{
  (void)state;
  char path[512];
  plan_once(NULL);
  stored_path(path);
  assert_int_equal(shell("mv %s away.plan && ln -s %s/away.plan %s", path, folder, path), 0);
  struct ct_cache_stats stats = plan_once(NULL);
  assert_int_equal(stats.hits, 0);
  assert_int_equal(stats.stored, 1); /* in place of the link */
  assert_int_equal(plan_once(NULL).hits, 1);
}

static void
test_usual_places(void **state)
{
  (void)state;
  char path[160], expected[160];
  snprintf(path, sizeof(path), "%s/own", folder);
  snprintf(expected, sizeof(expected), "%s/.cache/contrail", folder);
  unsetenv("CONTRAIL_CACHE");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", folder, 1);
  struct ct_cache *cache = ct_cache_open(NULL, NULL);
  assert_string_equal(ct_cache_path(cache), expected);
  ct_cache_close(cache);
  setenv("XDG_CACHE_HOME", "relative", 1);
  cache = ct_cache_open(NULL, NULL);
  assert_string_equal(ct_cache_path(cache), expected);
  ct_cache_close(cache);
  setenv("XDG_CACHE_HOME", path, 1); /* is not there, so is not made */
  assert_null(ct_cache_open(NULL, NULL));
  assert_int_equal(mkdir(path, 0755), 0);
  cache = ct_cache_open(NULL, NULL);
  strcat(path, "/contrail");
  assert_string_equal(ct_cache_path(cache), path);
  ct_cache_close(cache);
  setenv("CONTRAIL_CACHE", directory, 1);
  cache = ct_cache_open(NULL, NULL);
  assert_string_equal(ct_cache_path(cache), directory);
  ct_cache_close(cache);
  setenv("CONTRAIL_CACHE", "", 1);
  assert_null(ct_cache_open(NULL, NULL));
  if (geteuid() == 0) { /* root in somebody else's home leaves nothing there */
    unsetenv("CONTRAIL_CACHE");
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(shell("mkdir home && chown 12345 home"), 0);
    snprintf(path, sizeof(path), "%s/home", folder);
    setenv("HOME", path, 1);
    assert_null(ct_cache_open(NULL, NULL));
    strcat(path, "/.cache");
    assert_int_not_equal(access(path, F_OK), 0);
  }
}

static void
count_visit(void *context, const struct ct_cache_entry *entry)
{
  int *counts = context;
  assert_true(entry->file[0] != '\0' && entry->bytes != 0 && entry->used_wall_ns != 0);
  counts[entry->damaged ? 0 : 1]++;
  if (!entry->damaged) {
    assert_string_equal(entry->path, module);
    assert_true(entry->current && entry->functions > 100);
  }
}

/* Three old files fill it; the oldest go first, and what is in use stays. */
static void
test_eviction(void **state)
{
  (void)state;
  int counts[2] = {0};
  plan_once(NULL);
  assert_int_equal(
      shell("cd cache && for i in 1 2 3; do truncate -s 170M $i-x.plan; touch -d 2001-02-0$i $i-x.plan; done; "
            "touch .new-1-1; touch -d 2001-02-03 .new-2-2; touch notes"),
      0);
  assert_int_equal(shell("touch -d 2001-02-03 module"), 0); /* another plan, which is stored: no need to evict yet */
  assert_int_equal(plan_once(NULL).evicted, 0);
  assert_int_equal(shell("test -e cache/1-x.plan && test ! -e cache/.new-2-2 && test -e cache/.new-1-1"), 0);
  assert_int_equal(shell("truncate -s 200M cache/3-x.plan && touch -d 2001-02-03 cache/3-x.plan"), 0);
  assert_int_equal(shell("touch -d 2001-02-04 module"), 0);
  struct ct_cache_stats stats = plan_once(NULL);
  assert_int_equal(stats.evicted, 1);
  assert_int_equal(stats.stored, 1);
  assert_int_equal(shell("test ! -e cache/1-x.plan && test -e cache/2-x.plan && test -e cache/notes"), 0);
  assert_int_equal(plan_once(NULL).hits, 1);
  struct ct_cache *cache = open_cache();
  assert_int_equal(ct_cache_list(cache, count_visit, counts), 0);
  assert_int_equal(counts[0], 2);
  assert_int_equal(counts[1], 3);
  assert_int_equal(ct_cache_clear(cache), 5);
  assert_int_equal(ct_cache_clear(cache), 0);
  ct_cache_close(cache);
  assert_int_equal(shell("test -e cache/notes"), 0);
}

/* A directory that takes no file: planned all the same, and nothing is left behind. */
static void
test_unwritable(void **state)
{
  (void)state;
  plan_once(NULL);
  assert_int_equal(shell("rm cache/*.plan && chmod 0500 cache"), 0);
  struct ct_cache_stats stats = plan_once(NULL);
  assert_int_equal(stats.misses, 1);
  assert_int_equal(stats.stored, geteuid() == 0); /* root may all the same */
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_same_again, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_libc_has_aliases, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_filter_result_is_not_kept, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_changes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_no_build_id, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_unreadable, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_damage, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_made_up, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_whose_directory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_links, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_usual_places, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_eviction, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_unwritable, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
