/* SPDX-License-Identifier: MIT */
/* The memory of recordings that keep the last stretch: what is in it, what goes, and what a reader finds after a death.
 */
#include "trace/store.h"

#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (1u << 20)

static char runtime[64];

static int
setup(void **state)
{
  (void)state;
  strcpy(runtime, "/tmp/contrail-store.XXXXXX");
  return mkdtemp(runtime) != NULL && setenv("XDG_RUNTIME_DIR", runtime, 1) == 0 ? 0 : -1;
}

static int
teardown(void **state)
{
  char path[128];
  (void)state;
  snprintf(path, sizeof(path), "%s/contrail", runtime);
  rmdir(path);
  return rmdir(runtime);
}

/* Record n: its number, over and over; its size depends on it. */
static size_t
make_data(uint64_t n, uint64_t *data)
{
  size_t count = 1 + n * 7919 % 3000;
  for (size_t i = 0; i < count; i++) {
    data[i] = n;
  }
  return count * sizeof(*data);
}

static void
put(struct ct_store *store, uint64_t n, struct ct_store_share *share)
{
  static uint64_t data[3001];
  struct ct_store_item item = {
      .kind = CT_STORE_BLOCK, .thread = (uint32_t)(n % 5), .events = 3, .name = "name", .last_tsc = n, .share = share};
  ct_store_put(store, &item, data, make_data(n, data));
}

static bool
is_record(uint64_t n, const struct ct_store_record *record, const uint8_t *data)
{
  static uint64_t wanted[3001];
  size_t bytes = make_data(n, wanted);
  return record->sequence == n && record->data_bytes == bytes && memcmp(data, wanted, bytes) == 0 &&
         strcmp(record->name, "name") == 0;
}

/* Any number of records: the last ones are there, whole, and the sums are right. */
static void
test_wraps(void **state)
{
  struct ct_store *store;
  struct ct_store_share share = {0};
  struct ct_store_state s;
  struct ct_store_record record;
  struct ct_store_buffer buffer = {0};
  (void)state;
  assert_int_equal(ct_store_create(BYTES, 0, &store, NULL), CT_OK);
  for (uint64_t n = 0; n < 2000; n++) {
    put(store, n, &share);
    ct_store_get_state(store, &s);
    assert_int_equal(s.next_sequence, n + 1);
    assert_int_equal(s.events + s.gone_events, 3 * (n + 1));
    assert_int_equal(share.events, s.events);
    assert_int_equal(share.records, s.next_sequence - s.first_sequence);
    assert_true(s.bytes <= s.capacity);
    assert_true(s.first_sequence == 0 || (s.bytes > s.capacity - 60000 && s.begin_tsc == s.first_sequence - 1));
  }
  assert_true(s.first_sequence > 1800);
  for (uint64_t n = s.first_sequence; n < s.next_sequence; n++) {
    assert_int_equal(ct_store_copy(store, n, &record, &buffer), CT_OK);
    assert_true(is_record(n, &record, buffer.data));
  }
  assert_int_equal(ct_store_copy(store, s.first_sequence - 1, &record, &buffer), CT_ENOENT);
  assert_int_equal(ct_store_copy(store, s.next_sequence, &record, &buffer), CT_ENOENT);
  assert_true(ct_store_has(store, &share));
  free(buffer.data);
  ct_store_destroy(store, false);
}

static void
test_largest(void **state)
{
  static uint8_t data[CT_STORE_DATA_MAX];
  struct ct_store *store;
  struct ct_store_state s;
  struct ct_store_item item = {.kind = CT_STORE_BLOCK, .events = 1};
  (void)state;
  assert_int_equal(ct_store_create(BYTES, 0, &store, NULL), CT_OK);
  for (int n = 0; n < 100; n++) {
    ct_store_put(store, &item, data, n % 3 == 0 ? sizeof(data) : (size_t)n * 1000);
    ct_store_get_state(store, &s);
    assert_true(s.next_sequence > s.first_sequence && s.bytes <= s.capacity);
  }
  ct_store_destroy(store, false);
}

/* Before it is too old: how often that was tried. There may be no processor for so long. */
static int
put_and_look(struct ct_store *store, int begin)
{
  struct ct_store_state s;
  int turns = 0;
  do {
    put(store, begin + turns++, NULL);
    ct_store_get_state(store, &s);
    assert_int_equal(s.gone_events + s.events, 3 * (begin + turns));
  } while (s.events == 0 && turns < 100);
  assert_int_equal(s.events, 3);
  return turns;
}

static void
test_age(void **state)
{
  struct ct_store *store;
  struct ct_store_state s;
  (void)state;
  assert_int_equal(ct_store_create(BYTES, 50 * 1000 * 1000, &store, NULL), CT_OK);
  int turns = put_and_look(store, 0);
  usleep(60000);
  ct_store_get_state(store, &s);
  assert_int_equal(s.events, 0);
  assert_int_equal(s.gone_events, 3 * turns);
  put_and_look(store, turns);
  ct_store_destroy(store, false);
}

/* The name of the one store in the folder. */
static void
find_store(const char *folder, char name[256])
{
  DIR *stream = opendir(folder);
  const struct dirent *entry;
  assert_non_null(stream);
  while ((entry = readdir(stream)) != NULL && strstr(entry->d_name, CT_STORE_SUFFIX) == NULL)
    ;
  assert_non_null(entry);
  snprintf(name, 256, "%s", entry->d_name);
  closedir(stream);
}

/* A process that is killed at any time leaves whole records, in their order, up to the last one. */
static void
test_killed(void **state)
{
  char folder[128], name[256], path[512];
  (void)state;
  snprintf(folder, sizeof(folder), "%s/contrail", runtime);
  for (int turn = 0; turn < 20; turn++) {
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
      struct ct_store *store;
      if (ct_store_create(BYTES, 0, &store, NULL) != CT_OK) {
        _exit(1);
      }
      for (uint64_t n = 0;; n++) {
        put(store, n, NULL);
        if (n == 1000 && write(ready[1], "x", 1) != 1) {
          _exit(1);
        }
      }
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    find_store(folder, name);
    struct ct_store_image *image;
    struct ct_store_record record;
    struct ct_store_buffer buffer = {0};
    int dir_fd = open(folder, O_RDONLY | O_DIRECTORY);
    assert_int_equal(ct_store_open(dir_fd, name, &image, NULL), CT_EEXIST); /* it lives */
    usleep((unsigned)turn * 100);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(ct_store_open(dir_fd, name, &image, NULL), CT_OK);
    uint64_t next = 0;
    while (ct_store_next(image, &record, &buffer)) {
      assert_true(next == 0 || record.sequence == next);
      assert_true(is_record(record.sequence, &record, buffer.data));
      next = record.sequence + 1;
    }
    assert_true(next > 1000);
    assert_int_equal(ct_store_image_gaps(image), 0);
    ct_store_close(image);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path);
    close(dir_fd);
    close(ready[0]);
    close(ready[1]);
    free(buffer.data);
  }
}

/* Records before those: small ones, which are overwritten, and large ones up to some bytes before the end of the log.
 */
enum { STEPPED_SMALL = 8, STEPPED_LARGE = 24, STEPPED_BEFORE = STEPPED_SMALL + STEPPED_LARGE + 1, STEPPED = 5 };

static const uint32_t stepped_rests[] = {128, 96, 0};

static size_t
stepped_bytes(uint64_t n, uint32_t rest)
{
  const size_t capacity = BYTES - CT_STORE_HEADER_BYTES, record = sizeof(struct ct_store_record);
  const size_t small = 704, large = 40000;
  if (n + 1 == STEPPED_BEFORE) {
    return capacity - rest - record - STEPPED_SMALL * (record + small) - STEPPED_LARGE * (record + large);
  }
  return n < STEPPED_SMALL ? small : n < STEPPED_BEFORE ? large : 300 + n % 4 * 100;
}

static const uint64_t *
stepped_data(uint64_t n, size_t bytes)
{
  static uint64_t data[10000];
  for (size_t i = 0; i < (bytes + 7) / 8; i++) { /* no more: each is a few steps */
    data[i] = n;
  }
  return data;
}

/* The child: stops when the small records are to come. */
static void
put_stepped(uint32_t rest)
{
  struct ct_store *store;
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || ct_store_create(BYTES, 0, &store, NULL) != CT_OK) {
    _exit(1);
  }
  for (uint64_t n = 0; n < STEPPED_BEFORE + STEPPED; n++) {
    size_t bytes = stepped_bytes(n, rest);
    const uint64_t *data = stepped_data(n, bytes);
    if (n == STEPPED_BEFORE) {
      raise(SIGSTOP);
    }
    struct ct_store_item item = {.kind = CT_STORE_BLOCK, .events = 1, .name = "name", .last_tsc = n + 1};
    ct_store_put(store, &item, data, bytes);
  }
  _exit(0);
}

struct stepped {
  int dir_fd, copy_fd;
  uint8_t *store, *copy; /* the child's file, and as it was when it was last looked at */
  uint32_t rest;
  uint64_t first, next; /* of the records */
};

/* What it would find if the child were killed here: no gap, nothing but whole records, and none that was there once
 * and has not given way. */
static void
check_stepped(struct stepped *s)
{
  struct ct_store_image *image;
  struct ct_store_record record;
  struct ct_store_buffer buffer = {0};
  uint64_t first = 0, next = 0;
  memcpy(s->copy, s->store, BYTES);
  assert_int_equal(pwrite(s->copy_fd, s->copy, BYTES, 0), BYTES);
  assert_int_equal(ct_store_open(s->dir_fd, "copy", &image, NULL), CT_OK);
  while (ct_store_next(image, &record, &buffer)) {
    assert_true(next == 0 || record.sequence == next);
    assert_int_equal(record.data_bytes, stepped_bytes(record.sequence, s->rest));
    assert_memory_equal(buffer.data, stepped_data(record.sequence, record.data_bytes), record.data_bytes);
    first = next == 0 ? record.sequence : first;
    next = record.sequence + 1;
  }
  assert_int_equal(ct_store_image_gaps(image), 0);
  assert_true(first >= s->first && first <= STEPPED_SMALL && next >= s->next);
  assert_true(ct_store_image_header(image)->begin_tsc >= first); /* after that all is there */
  s->first = first;
  s->next = next;
  ct_store_close(image);
  free(buffer.data);
}

/* Whether something that a reader looks at is not as it was. */
static bool
has_changed(const struct stepped *s)
{
  const struct ct_store_header *header = (const struct ct_store_header *)s->store;
  uint64_t capacity = BYTES - CT_STORE_HEADER_BYTES, at = header->head % capacity;
  uint64_t bytes = capacity - at < 4096 ? capacity - at : 4096;
  const size_t log = CT_STORE_HEADER_BYTES;
  return memcmp(s->store, s->copy, sizeof(*header)) != 0 ||
         memcmp(s->store + log + at, s->copy + log + at, bytes) != 0 ||
         memcmp(s->store + log, s->copy + log, 4096) != 0;
}

/* One that is killed after any of its instructions, over the end of the log too, leaves whole records without a gap. */
static void
test_killed_anywhere(void **state)
{
  char folder[128], name[256];
  (void)state;
  snprintf(folder, sizeof(folder), "%s/contrail", runtime);
  for (size_t turn = 0; turn < sizeof(stepped_rests) / sizeof(stepped_rests[0]); turn++) {
    struct stepped s = {.rest = stepped_rests[turn]};
    int status, looks = 0;
    pid_t child = fork();
    if (child == 0) {
      put_stepped(s.rest);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    find_store(folder, name);
    s.dir_fd = open(folder, O_RDONLY | O_DIRECTORY);
    int fd = openat(s.dir_fd, name, O_RDWR);
    s.copy_fd = openat(s.dir_fd, "copy", O_RDWR | O_CREAT | O_EXCL, 0600);
    s.store = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    s.copy = malloc(BYTES);
    assert_true(fd >= 0 && s.copy_fd >= 0 && s.store != MAP_FAILED && s.copy != NULL);
    check_stepped(&s);
    assert_true(s.first == 0 && s.next == STEPPED_BEFORE);
    while (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child &&
           WIFSTOPPED(status)) {
      if (has_changed(&s)) {
        check_stepped(&s);
        looks++;
      }
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(s.first > 1 && s.next == STEPPED_BEFORE + STEPPED && looks > 5 * STEPPED);
    munmap(s.store, BYTES);
    free(s.copy);
    unlinkat(s.dir_fd, "copy", 0);
    unlinkat(s.dir_fd, name, 0);
    close(fd);
    close(s.copy_fd);
    close(s.dir_fd);
  }
}

/* Files that are no store of ours are refused. */
static void
test_refused(void **state)
{
  char path[128], other[128];
  struct ct_store_image *image;
  (void)state;
  int dir_fd = open(runtime, O_RDONLY | O_DIRECTORY);
  snprintf(path, sizeof(path), "%s/a.store", runtime);
  snprintf(other, sizeof(other), "%s/b.store", runtime);
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  assert_int_equal(ct_store_open(dir_fd, "a.store", &image, NULL), CT_EFORMAT); /* empty */
  struct ct_store_header header = {.magic = CT_STORE_MAGIC, .version = CT_STORE_VERSION, .capacity = BYTES, .head = 64};
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_store_header, header_crc));
  assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
  assert_int_equal(ct_store_open(dir_fd, "a.store", &image, NULL), CT_EFORMAT); /* cut in its head */
  assert_int_equal(ftruncate(fd, CT_STORE_HEADER_BYTES), 0);
  assert_int_equal(ct_store_open(dir_fd, "a.store", &image, NULL),
                   CT_OK); /* no record is there, though its head says so */
  struct ct_store_record record;
  struct ct_store_buffer buffer = {0};
  assert_false(ct_store_next(image, &record, &buffer));
  ct_store_close(image);
  header.head = 1ull << 40;
  assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
  assert_int_equal(ct_store_open(dir_fd, "a.store", &image, NULL), CT_EFORMAT);
  assert_int_equal(symlink(path, other), 0);
  assert_int_not_equal(ct_store_open(dir_fd, "b.store", &image, NULL), CT_OK);
  unlink(other);
  assert_int_equal(link(path, other), 0);
  assert_int_equal(ct_store_open(dir_fd, "b.store", &image, NULL), CT_EACCES);
  unlink(other);
  assert_int_equal(mkfifo(other, 0600), 0);
  assert_int_equal(ct_store_open(dir_fd, "b.store", &image, NULL), CT_EACCES);
  unlink(other);
  fchmod(fd, 0640);
  assert_int_equal(ct_store_open(dir_fd, "a.store", &image, NULL), CT_EACCES);
  close(fd);
  unlink(path);
  close(dir_fd);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wraps),  cmocka_unit_test(test_largest),         cmocka_unit_test(test_age),
      cmocka_unit_test(test_killed), cmocka_unit_test(test_killed_anywhere), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
