/* SPDX-License-Identifier: MIT */
/* The trace directory: creation, many threads, full and hanging disk, function table, manifest, clock. */
#include "base/crc32c.h"
#include "trace/pieces.h"
#include "unit/trace_model.h"
#include "unit/waiting.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* ---- creation ---- */

static void
assert_create_fails(const char *path, int code, const char *text)
{
  struct ct_trace_writer *writer = NULL;
  struct ct_diag diag = {""};
  assert_int_equal(ct_trace_writer_create(path, 1 << 20, &writer, &diag), code);
  assert_null(writer);
  if (strstr(diag.text, text) == NULL) {
    fail_msg("\"%s\" does not say \"%s\"", diag.text, text);
  }
}

static void
test_create(void **state)
{
  struct ct_trace_writer *writer;
  assert_create_fails(path_in(state, "none/t"), CT_ENOENT, "parent directory");
  write_bytes(path_in(state, "file"), "x", 1);
  assert_create_fails(path_in(state, "file"), CT_EEXIST, "not a directory");
  assert_create_fails(path_in(state, "file/t"), CT_ENOENT, "not a directory");
  assert_create_fails(*state, CT_EEXIST, "not empty");
  assert_create_fails("/proc/contrail", CT_ENOENT, "/proc");
  assert_int_equal(mkdir(path_in(state, "t"), 0777), 0);
  assert_int_equal(ct_trace_writer_create(path_in(state, "t///"), 0, &writer, NULL), CT_OK);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  assert_create_fails(path_in(state, "t/"), CT_EEXIST, "not empty");
  assert_int_equal(ct_trace_writer_close(NULL, NULL), CT_OK);
}

static void
test_read_only(void **state)
{
  if (geteuid() != 0) {
    assert_int_equal(chmod(*state, 0555), 0);
    assert_create_fails(path_in(state, "t"), CT_EACCES, "permission");
    assert_int_equal(chmod(*state, 0755), 0);
    return;
  }
  if (mount("tmpfs", *state, "tmpfs", MS_RDONLY, "size=64k") != 0) {
    skip();
  }
  assert_create_fails(path_in(state, "t"), CT_EACCES, "read-only");
  assert_int_equal(umount(*state), 0);
}

/* ---- a full disk ---- */

static void
test_full_disk(void **state)
{
  if (geteuid() != 0 || mount("tmpfs", *state, "tmpfs", 0, "size=64k") != 0) {
    skip();
  }
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct model m = {.random = 77};
  struct ct_diag diag = {""};
  struct ct_encoder *none = NULL;
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &m.encoder), CT_OK);
  assert_int_equal(ct_trace_writer_function(writer, 0, 0, 0x10, 4, "full", "main"), CT_OK);
  for (int i = 0; i < 300000; i++) {
    model_step(&m, 3000, true);
    if (i % 3000 == 0) {
      ct_encoder_flush(m.encoder);
    }
  }
  assert_int_equal(ct_trace_writer_sync(writer), CT_ENOSPC);
  uint64_t events = ct_encoder_events(m.encoder);
  assert_int_equal(ct_trace_writer_error(writer, &diag), CT_ENOSPC);
  assert_non_null(strstr(diag.text, "t/thread_0/index.ctb: No space left"));
  /* Everything after it gives the same code and changes nothing, and the stack goes on. */
  for (int i = 0; i < 50000; i++) {
    model_step(&m, 3000, true);
  }
  assert_int_equal(ct_encoder_depth(m.encoder), model_stack(&m)->count);
  assert_int_equal(ct_encoder_flush(m.encoder), CT_ENOSPC);
  assert_int_equal(ct_encoder_events(m.encoder), events);
  assert_int_equal(ct_trace_writer_thread(writer, 1, 1, 1, &none), CT_ENOSPC);
  assert_null(none);
  assert_int_equal(ct_trace_writer_function(writer, 1, 0, 0x10, 4, "full", "main"), CT_ENOSPC);
  diag.text[0] = '\0';
  assert_int_equal(ct_trace_writer_close(writer, &diag), CT_ENOSPC);
  assert_non_null(strstr(diag.text, "No space left"));

  struct ct_trace *trace = open_trace(state);
  assert_false(ct_trace_is_complete(trace));
  size_t got = compare_thread(trace, 0, &m, CT_CURSOR_END); /* no partial block at its end */
  assert_true(got > 1000 && got < m.count);
  assert_int_equal(ct_trace_thread(trace, 0)->events, events);
  assert_string_equal(ct_trace_function(trace, 0)->name, "main");
  ct_trace_close(trace);
  model_free(&m);
  assert_int_equal(umount(*state), 0);
}

/* The table on a full disk ends with a whole line. */
static void
test_full_disk_functions(void **state)
{
  if (geteuid() != 0 || mount("tmpfs", *state, "tmpfs", 0, "size=64k") != 0) {
    skip();
  }
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  uint32_t id = 0;
  while (ct_trace_writer_function(writer, id, 0, id, 4, "full", "_ZN3foo3barEv") == CT_OK) {
    id++;
  }
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_ENOSPC);
  size_t size;
  uint8_t *text = read_bytes(path_in(state, "t/functions.tsv"), &size);
  assert_true(size > 20000 && text[size - 1] == '\n');
  free(text);
  struct ct_trace *trace = open_trace(state);
  assert_true(ct_trace_function_count(trace) > 1000);
  ct_trace_close(trace);
  assert_int_equal(umount(*state), 0);
}

/* ---- a trace of bounded size ---- */

/* What a thread did last stays, though what another did before is written after it. */
static void
test_oldest_event_goes(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  assert_int_equal(ct_trace_writer_limit(writer, 1 << 20), CT_OK);
  struct model late = {.random = 5, .tsc = 1ull << 60}, busy = {.random = 6};
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &late.encoder), CT_OK);
  assert_int_equal(ct_trace_writer_thread(writer, 1, 2, 2, &busy.encoder), CT_OK);
  assert_int_equal(ct_trace_writer_function(writer, 0, 0, 0x10, 4, "bounded", "main"), CT_OK);
  model_enter(&late, late.tsc, 0);
  assert_int_equal(ct_encoder_flush(late.encoder), CT_OK);
  struct ct_pieces_state pieces = {0};
  for (uint64_t tsc = 1, n = 0; pieces.gone_bytes < 1 << 18; tsc += 1 + model_random(&busy, 1ull << 34)) {
    busy.count = 0;
    model_enter(&busy, tsc, 0);
    model_return(&busy, tsc + 1, 0);
    assert_true(tsc < late.tsc && (++n % 1000 != 0 || ct_trace_writer_limited(writer, &pieces)));
  }
  assert_true(pieces.begin_tsc < late.tsc);
  assert_int_equal(ct_encoder_flush(busy.encoder), CT_OK);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  assert_int_equal(access(path_in(state, "t/thread_0/index-1.ctb"), R_OK), 0);
  assert_int_equal(access(path_in(state, "t/thread_1/index-1.ctb"), F_OK), -1);
  model_free(&late);
  model_free(&busy);
}

/* ---- a file-size limit ---- */

/* In a child, with SIGXFSZ as it is by default: deadly. Returns 0, or the number of the step that went wrong. */
static int
write_beyond_limit(void **state, uint64_t *events)
{
  struct rlimit limit = {.rlim_cur = 100000, .rlim_max = 100000};
  struct ct_trace_writer *writer;
  struct model m = {.random = 21};
  struct ct_diag diag = {""};
  sigset_t pending;
  if (signal(SIGXFSZ, SIG_DFL) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0) {
    return 1;
  }
  if (ct_trace_writer_create(path_in(state, "t"), 1 << 20, &writer, NULL) != CT_OK ||
      ct_trace_writer_thread(writer, 0, 1, 1, &m.encoder) != CT_OK) {
    return 2;
  }
  json_t *manifest =
      json_pack("{s:s, s:i, s:s}", "format", "contrail", "version", CT_TRACE_VERSION, "state", "recording");
  if (ct_trace_writer_manifest(writer, manifest) != CT_OK) {
    return 3;
  }
  for (int i = 0; i < 200000; i++) {
    model_step(&m, 3000, true);
    if (i % 3000 == 0) {
      ct_encoder_flush(m.encoder);
    }
  }
  if (ct_trace_writer_sync(writer) != CT_ENOSPC || ct_trace_writer_error(writer, &diag) != CT_ENOSPC ||
      strstr(diag.text, "index.ctb: File too large") == NULL) {
    return 4;
  }
  *events = ct_encoder_events(m.encoder);
  char *text = malloc(200001); /* a manifest that is beyond the limit too: the old one stays */
  if (text == NULL) {
    return 5;
  }
  memset(text, 'x', 200000);
  text[200000] = '\0';
  json_object_set_new(manifest, "command", json_string(text));
  free(text);
  if (ct_trace_writer_manifest(writer, manifest) != CT_ENOSPC) {
    return 6;
  }
  json_decref(manifest);
  if (ct_trace_writer_close(writer, NULL) != CT_ENOSPC) {
    return 7;
  }
  model_free(&m);
  sigpending(&pending);
  return sigismember(&pending, SIGXFSZ) ? 8 : 0;
}

static void
test_file_size_limit(void **state)
{
  int status;
  uint64_t *events = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_ptr_not_equal(events, MAP_FAILED);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    _exit(write_beyond_limit(state, events));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);

  struct ct_trace *trace = open_trace(state);
  struct ct_cursor *cursor;
  const struct ct_event *batch;
  struct stat st;
  assert_int_equal(ct_trace_thread(trace, 0)->events, *events);
  assert_true(*events > 1000);
  assert_int_equal(stat(path_in(state, "t/thread_0/index.ctb"), &st), 0);
  assert_true(st.st_size > 50000 && st.st_size <= 100000);
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  while (ct_cursor_next(cursor, &batch) > 0)
    ;
  assert_int_equal(ct_cursor_state(cursor), CT_CURSOR_END);
  ct_cursor_close(cursor);
  ct_trace_close(trace);
  assert_int_equal(munmap(events, 4096), 0);
}

/* ---- a disk that hangs ---- */

struct stall {
  int lease;            /* of a file: who else opens it waits */
  atomic_uint progress; /* of the caller; 0: release at once */
  atomic_bool released;
  pid_t caller;
};

/* Lets the writer thread go on when the caller has waited for a while. */
static void *
release_stall(void *context)
{
  struct stall *stall = context;
  wait_until_still(&stall->progress, stall->caller);
  atomic_store(&stall->released, true);
  fcntl(stall->lease, F_SETLEASE, F_UNLCK);
  return NULL;
}

static void
flush_noise(struct model *m, struct ct_encoder *encoder, uint64_t *tsc)
{
  for (int i = 0; i < 2000; i++) {
    ct_encode_point(encoder, *tsc += model_random(m, 1u << 28), (uint32_t)model_random(m, CT_FUNCTION_ID_MAX));
  }
  ct_encoder_flush(encoder);
}

/* Of so many threads not all files stay open. */
static struct ct_trace_writer *
with_few_files(void **state, struct rlimit *before, uint64_t buffer, struct ct_encoder **encoders, uint32_t count)
{
  struct rlimit few = {.rlim_cur = 64};
  assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
  few.rlim_max = before->rlim_max;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  struct ct_trace_writer *writer = create_writer(state, buffer);
  for (uint32_t i = 0; i < count; i++) {
    assert_int_equal(ct_trace_writer_thread(writer, i, 1 + i, 1, &encoders[i]), CT_OK);
  }
  assert_int_equal(ct_trace_writer_sync(writer), CT_OK);
  return writer;
}

/*
 * There is a lease of a thread's file, so that opening it again hangs. Until the queue (a third of 6 MiB) is full, all
 * calls return; then they wait. When it goes on, nothing is lost.
 */
static void
test_stalled_disk(void **state)
{
  enum { THREADS = 40, QUEUE = 2 << 20 };
  struct rlimit before;
  struct ct_encoder *encoders[THREADS];
  struct stall stall = {.progress = 1, .caller = gettid()};
  struct model m = {.random = 4};
  struct stat st;
  pthread_t thread;
  uint64_t tsc = 1, events = 0, bytes_stalled = 0;
  struct ct_trace_writer *writer = with_few_files(state, &before, 3 * QUEUE, encoders, THREADS);
  uint64_t bytes = ct_trace_writer_bytes(writer);

  stall.lease = open(path_in(state, "t/thread_0/index.ctb"), O_RDWR | O_CLOEXEC);
  assert_true(stall.lease >= 0);
  signal(SIGIO, SIG_IGN); /* somebody waits for it */
  bool is_leased = fcntl(stall.lease, F_SETLEASE, F_WRLCK) == 0;
  if (is_leased) {
    flush_noise(&m, encoders[0], &tsc);
    for (int i = 0; i < 20; i++, events += 2000) {
      flush_noise(&m, encoders[THREADS - 1], &tsc);
    }
    assert_int_equal(ct_trace_writer_error(writer, NULL), CT_OK);
    assert_int_equal(ct_encoder_events(encoders[THREADS - 1]), events);
    assert_int_equal(stat(path_in(state, "t/thread_39/index.ctb"), &st), 0);
    assert_int_equal(st.st_size, sizeof(struct ct_file_header));

    assert_int_equal(pthread_create(&thread, NULL, release_stall, &stall), 0);
    for (; !atomic_load(&stall.released); events += 2000) {
      bytes_stalled = ct_trace_writer_bytes(writer) - bytes;
      flush_noise(&m, encoders[THREADS - 1], &tsc);
      atomic_fetch_add(&stall.progress, 1);
    }
    assert_true(bytes_stalled > QUEUE / 2 && bytes_stalled < QUEUE);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ct_trace_writer_sync(writer), CT_OK);
    assert_int_equal(ct_encoder_events(encoders[0]), 2000);
    assert_int_equal(ct_encoder_events(encoders[THREADS - 1]), events);
  }
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  assert_int_equal(close(stall.lease), 0);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  if (!is_leased) {
    skip();
  }
}

/* Another file, or a pipe, for which opening would wait, is in the place of a thread's: nothing goes there. */
static void
test_replaced_file(void **state)
{
  enum { THREADS = 40 };
  for (int pipe = 0; pipe < 2; pipe++) {
    struct rlimit before;
    struct ct_encoder *encoders[THREADS];
    struct model m = {.random = 4};
    struct stat st;
    struct ct_diag diag = {""};
    uint64_t tsc = 1;
    struct ct_trace_writer *writer = with_few_files(state, &before, 6 << 20, encoders, THREADS);
    const char *path = path_in(state, "t/thread_0/index.ctb");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pipe ? mkfifo(path, 0600) : close(open(path, O_WRONLY | O_CREAT, 0600)), 0);
    flush_noise(&m, encoders[0], &tsc);
    assert_true(ct_trace_writer_sync(writer) != CT_OK);
    ct_trace_writer_error(writer, &diag);
    assert_non_null(strstr(diag.text, "thread_0/index.ctb: another file is in its place"));
    assert_int_equal(ct_encoder_events(encoders[0]), 0);
    assert_true(stat(path, &st) == 0 && st.st_size == 0);
    assert_true(ct_trace_writer_close(writer, NULL) != CT_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    temporary_teardown(state);
    temporary_setup(state);
  }
}

/* ---- many threads ---- */

static double
clock_us(clockid_t clock)
{
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static uint32_t
short_thread_calls(uint32_t index)
{
  return 15 + index % 13;
}

static void
write_short_threads(struct ct_trace_writer *writer, uint32_t threads)
{
  struct ct_encoder *encoder;
  uint64_t tsc = 1000;
  for (uint32_t i = 0; i < threads; i++) {
    assert_int_equal(ct_trace_writer_thread(writer, i, 1 + i, 1, &encoder), CT_OK);
    for (uint32_t n = 0; n < short_thread_calls(i); n++) {
      ct_encode_enter(encoder, tsc += 50 + n, (i + n) % 300, 0);
      ct_encode_return(encoder, tsc += 100);
    }
    assert_int_equal(ct_encoder_close(encoder), CT_OK);
  }
}

static void
check_short_threads(void **state, uint32_t threads)
{
  struct ct_trace *trace = open_trace(state);
  struct ct_cursor *cursor;
  const struct ct_event *events;
  uint64_t tsc = 1000;
  assert_int_equal(ct_trace_thread_count(trace), threads);
  for (uint32_t i = 0; i < threads; i++) {
    assert_int_equal(ct_cursor_open(trace, i, 0, &cursor, NULL), CT_OK);
    assert_int_equal(ct_cursor_next(cursor, &events), 2 * short_thread_calls(i));
    for (uint32_t n = 0; n < short_thread_calls(i); n++) {
      assert_int_equal(events[2 * n].fn, (i + n) % 300);
      assert_int_equal(events[2 * n].tsc, tsc += 50 + n);
      assert_int_equal(events[2 * n + 1].tsc, tsc += 100);
    }
    assert_int_equal(ct_cursor_next(cursor, &events), 0);
    assert_int_equal(ct_cursor_state(cursor), CT_CURSOR_END);
    ct_cursor_close(cursor);
  }
  ct_trace_close(trace);
}

/* Threads that live for one small block: what they cost the calling thread, whatever the disk takes. */
static void
test_short_threads(void **state)
{
  enum { THREADS = 5000 };
  struct ct_trace_writer *writer = create_writer(state, 48 << 20);
  double wall = clock_us(CLOCK_MONOTONIC), cpu = clock_us(CLOCK_THREAD_CPUTIME_ID);
  write_short_threads(writer, THREADS);
  wall = (clock_us(CLOCK_MONOTONIC) - wall) / THREADS;
  cpu = (clock_us(CLOCK_THREAD_CPUTIME_ID) - cpu) / THREADS;
  double rest = clock_us(CLOCK_MONOTONIC);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  rest = (clock_us(CLOCK_MONOTONIC) - rest) * 1e-6;
  print_message("%d threads: %.2f us of processor time, %.2f us of time each; %.2f s more for the disk\n", THREADS, cpu,
                wall, rest);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  assert_true(cpu < 50); /* about 1 on an idle machine */
#endif
  check_short_threads(state, THREADS);
}

/* They come faster than files can be made: the queue of 1 MiB is full most of the time, and is gone through several
 * times. */
static void
test_full_queue(void **state)
{
  enum { THREADS = 5000 };
  struct ct_trace_writer *writer = create_writer(state, 0);
  write_short_threads(writer, THREADS);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  check_short_threads(state, THREADS);
}

static void
test_many_threads(void **state)
{
  enum { THREADS = 2000, ROUNDS = 12 };
  struct rlimit before, few = {.rlim_cur = 256};
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  struct ct_trace_writer *writer = create_writer(state, 4 << 20); /* some 13 of 2000 can hold buffers */
  struct model *models = calloc(THREADS, sizeof(*models));
  assert_non_null(models);
  for (uint32_t i = 0; i < THREADS; i++) {
    models[i].random = i + 1;
    assert_int_equal(ct_trace_writer_thread(writer, i, 100 + i, 9, &models[i].encoder), CT_OK);
  }
  for (int round = 0; round < ROUNDS; round++) {
    for (uint32_t i = 0; i < THREADS; i++) {
      if ((i + (uint32_t)round) % 3 == 0) {
        continue;
      }
      for (int n = 0; n < 30; n++) {
        model_step(&models[i], 500, true);
      }
    }
  }
  for (uint32_t i = 0; i < THREADS; i += 2) {
    assert_int_equal(ct_encoder_close(models[i].encoder), CT_OK);
  }
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);

  struct ct_trace *trace = open_trace(state);
  assert_int_equal(ct_trace_thread_count(trace), THREADS);
  struct ct_cursor **cursors = calloc(THREADS, sizeof(struct ct_cursor *));
  assert_non_null(cursors);
  for (uint32_t i = 0; i < THREADS; i++) { /* all at once, as a merge of the threads does */
    const struct ct_event *events;
    assert_int_equal(ct_cursor_open(trace, i, 0, &cursors[i], NULL), CT_OK);
    assert_true(ct_cursor_next(cursors[i], &events) > 0);
    assert_event_equal(&events[0], &models[i].events[0], 0);
  }
  for (uint32_t i = 0; i < THREADS; i++) {
    ct_cursor_close(cursors[i]);
  }
  for (uint32_t i = 0; i < THREADS; i++) {
    assert_int_equal(ct_trace_thread(trace, i)->index, i);
    assert_int_equal(ct_trace_thread(trace, i)->tid, 100 + i);
    assert_int_equal(compare_thread(trace, i, &models[i], CT_CURSOR_END), models[i].count);
    model_free(&models[i]);
  }
  ct_trace_close(trace);
  free(cursors);
  free(models);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- the function table ---- */

static void
write_manifest(void **state, const char *text)
{
  write_bytes(path_in(state, "t/manifest.json"), text, strlen(text));
}

static void
test_functions(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  assert_int_equal(ct_trace_writer_function(writer, 0, 0, 0x1234, 16, "full", "_ZN3foo3barEi"), CT_OK);
  assert_int_equal(ct_trace_writer_function(writer, 1, 1, 0xabcdef, 0, "enter", ""), CT_OK);
  assert_int_equal(ct_trace_writer_function(writer, 2, 7, UINT64_MAX, UINT64_MAX, "full", NULL), CT_OK);
  assert_int_equal(ct_trace_writer_function(writer, 3, 0, 1, 1, "full", "odd\tname\nof\x7f it"), CT_OK);
  assert_int_equal(ct_trace_writer_function(writer, 4, UINT32_MAX, 1, 1, "full", "plain"), CT_OK);
  struct ct_encoder *encoder;
  assert_int_equal(ct_trace_writer_thread(writer, 0, 1, 1, &encoder), CT_OK);
  ct_encode_enter(encoder, 10, 12345, 0);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  FILE *file = fopen(path_in(state, "t/functions.tsv"), "a");
  assert_non_null(file);
  fputs("bad line\n9\t0\t1\t1\tfull\tpast the end\n6\t0\tzz\t1\tfull\tx\n5\t0\t1\t1\tfull\tcut in mid-l", file);
  fclose(file);
  write_manifest(state, "{\"format\":\"contrail\",\"version\":1,\"state\":\"recording\",\"modules\":["
                        "{\"index\":0,\"image\":2,\"path\":\"/usr/bin/prog\",\"build_id\":\"ab\",\"base\":4096},"
                        "{\"index\":1,\"path\":\"libc.so.6\"}]}");
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(ct_trace_module_count(trace), 2);
  assert_string_equal(ct_trace_module(trace, 0)->path, "/usr/bin/prog");
  assert_string_equal(ct_trace_module(trace, 0)->build_id, "ab");
  assert_int_equal(ct_trace_module(trace, 0)->base, 4096);
  assert_int_equal(ct_trace_module(trace, 0)->image, 2);
  assert_null(ct_trace_module(trace, 2));
  assert_string_equal(ct_trace_module_name(trace, 0), "prog");
  assert_string_equal(ct_trace_module_name(trace, UINT32_MAX), "?");
  assert_int_equal(ct_trace_function_count(trace), 10); /* up to the highest id that a line has */
  const struct ct_trace_function *f = ct_trace_function(trace, 0);
  assert_string_equal(f->raw_name, "_ZN3foo3barEi");
  assert_string_equal(f->name, "foo::bar(int)");
  assert_int_equal(f->address, 0x1234);
  assert_int_equal(f->size, 16);
  assert_int_equal(f->enter_only, 0);
  assert_ptr_equal(ct_trace_function(trace, 0)->name, f->name);
  f = ct_trace_function(trace, 1);
  assert_string_equal(f->name, "libc.so.6+0xabcdef");
  assert_string_equal(f->raw_name, "");
  assert_int_equal(f->enter_only, 1);
  f = ct_trace_function(trace, 2);
  assert_string_equal(f->name, "?+0xffffffffffffffff");
  assert_true(f->size == UINT64_MAX);
  assert_string_equal(ct_trace_function(trace, 3)->name, "odd?name?of? it");
  assert_int_equal(ct_trace_function(trace, 4)->module, UINT32_MAX);
  assert_null(ct_trace_function(trace, 5)); /* its line is none */
  assert_string_equal(ct_trace_function(trace, 9)->name, "past the end");
  assert_null(ct_trace_function(trace, 10));
  struct ct_cursor *cursor; /* an id that the table does not have */
  const struct ct_event *events;
  assert_int_equal(ct_cursor_open(trace, 0, 0, &cursor, NULL), CT_OK);
  assert_int_equal(ct_cursor_next(cursor, &events), 1);
  assert_int_equal(events[0].fn, 12345);
  ct_cursor_close(cursor);
  ct_trace_close(trace);
}

/* The manifest may know of functions whose lines are not in the table yet; a name that was made for one is not kept. */
static void
test_functions_to_come(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  assert_int_equal(ct_trace_writer_function(writer, 0, 0, 16, 16, "full", "first"), CT_OK);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  write_manifest(state, "{\"format\":\"contrail\",\"version\":1,\"state\":\"recording\",\"function_count\":3}");
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(ct_trace_function_count(trace), 3);
  const char *made = ct_trace_function(trace, 1)->name;
  assert_string_equal(made, "(function 1)");
  FILE *file = fopen(path_in(state, "t/functions.tsv"), "a");
  assert_non_null(file);
  fputs("1\t0\t32\t16\tfull\tsecond\n", file);
  fclose(file);
  assert_int_equal(ct_trace_refresh(trace, NULL), CT_OK);
  assert_string_equal(ct_trace_function(trace, 1)->name, "second");
  assert_string_equal(ct_trace_function(trace, 2)->name, "(function 2)");
  assert_string_equal(made, "(function 1)"); /* who has it may use it until the trace is closed */
  ct_trace_close(trace);
}

static void
test_many_functions(void **state)
{
  enum { FUNCTIONS = 200000 };
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  char name[100];
  for (uint32_t id = 0; id < FUNCTIONS; id++) {
    snprintf(name, sizeof(name), "_ZN9namespace5klass%uEv_and_some_more_text_of_usual_length", id);
    assert_int_equal(ct_trace_writer_function(writer, id, id % 50, id * 64, 60, "full", name), CT_OK);
  }
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  struct timespec start, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  struct ct_trace *trace = open_trace(state);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  double ms = (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) * 1e-6;
  print_message("%d functions loaded in %.1f ms\n", FUNCTIONS, ms);
  assert_true(ms < 1000); /* 20 ms on an idle machine without sanitizers */
  assert_int_equal(ct_trace_function_count(trace), FUNCTIONS);
  assert_int_equal(ct_trace_function(trace, FUNCTIONS - 1)->address, (FUNCTIONS - 1) * 64);
  ct_trace_close(trace);
}

/* ---- the manifest ---- */

static void
assert_open_fails(void **state, int code, const char *text)
{
  struct ct_trace *trace = NULL;
  struct ct_diag diag = {""};
  assert_int_equal(ct_trace_open(path_in(state, "t"), &trace, &diag), code);
  assert_null(trace);
  if (strstr(diag.text, text) == NULL || strchr(diag.text, '\n') != NULL) {
    fail_msg("\"%s\" does not say \"%s\"", diag.text, text);
  }
}

static void
test_bad_manifest(void **state)
{
  const char *whole = "{\"format\":\"contrail\",\"version\":1,\"state\":\"recording\"}";
  char text[100];
  assert_open_fails(state, CT_ENOENT, "cannot open");
  assert_int_equal(mkdir(path_in(state, "t"), 0777), 0);
  assert_open_fails(state, CT_ENOENT, "no manifest.json");
  for (size_t cut = 0; cut < strlen(whole); cut++) {
    snprintf(text, sizeof(text), "%.*s", (int)cut, whole);
    write_manifest(state, text);
    assert_open_fails(state, CT_EFORMAT, "cut or damaged");
  }
  write_manifest(state, "[]");
  assert_open_fails(state, CT_EFORMAT, "cut or damaged");
  write_manifest(state, "{}");
  assert_open_fails(state, CT_EFORMAT, "another program");
  write_manifest(state, "{\"format\":\"contrail\",\"version\":5}");
  assert_open_fails(state, CT_EUNSUPPORTED, "version 5");
  write_manifest(state, "{\"format\":\"contrail\",\"version\":1,\"modules\":3,\"threads\":{},\"clock\":[]}");
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(ct_trace_thread_count(trace), 0);
  assert_int_equal(ct_trace_function_count(trace), 0);
  assert_int_equal(ct_trace_ns(trace, 5), 5);
  ct_trace_close(trace);
  assert_int_equal(unlink(path_in(state, "t/manifest.json")), 0);
  assert_int_equal(mkfifo(path_in(state, "t/manifest.json"), 0666), 0);
  assert_open_fails(state, CT_EFORMAT, "cannot read");
}

/* A thread's file of a newer version, alone or beside others, refuses the trace; with a wrong checksum it is damaged.
 */
static void
test_newer_file(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct ct_encoder *encoder;
  struct ct_file_header header;
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(ct_trace_writer_thread(writer, i, 50 + i, 50, &encoder), CT_OK);
    ct_encode_point(encoder, 10, 1);
  }
  json_t *manifest = json_pack("{s:s, s:i, s:s}", "format", "contrail", "version", 2, "state", "complete");
  assert_int_equal(ct_trace_writer_manifest(writer, manifest), CT_OK);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  json_decref(manifest);
  int fd = open(path_in(state, "t/thread_1/index.ctb"), O_RDWR);
  assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
  header.version = CT_TRACE_VERSION_NEWEST + 1;
  assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
  ct_trace_close(open_trace(state));
  header.header_crc = ct_crc32c(0, &header, offsetof(struct ct_file_header, header_crc));
  assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
  assert_open_fails(state, CT_EUNSUPPORTED,
                    "t/thread_1/index.ctb has format version 6; this program reads versions 1 to 5");
  close(fd);
}

/* Threads come from the manifest and from the directories. */
static void
test_threads(void **state)
{
  struct ct_trace_writer *writer = create_writer(state, 1 << 20);
  struct ct_encoder *encoder;
  for (uint32_t i = 0; i < 12; i++) {
    assert_int_equal(ct_trace_writer_thread(writer, i, 50 + i, 50, &encoder), CT_OK);
    for (uint32_t n = 0; n <= i; n++) {
      ct_encode_point(encoder, 10 + n, 1);
    }
  }
  json_t *manifest = json_pack("{s:s, s:i, s:s, s:[{s:i, s:i, s:s, s:i, s:i}, {s:i, s:s, s:i}]}", "format", "contrail",
                               "version", 1, "state", "complete", "threads", "index", 3, "tid", 53, "name", "worker",
                               "events", 1000, "dropped", 7, "index", 20, "name", "no file", "events", 0);
  assert_int_equal(ct_trace_writer_manifest(writer, manifest), CT_OK);
  assert_int_equal(ct_trace_writer_close(writer, NULL), CT_OK);
  assert_int_equal(mkdir(path_in(state, "t/thread_x"), 0777), 0);
  assert_int_equal(mkdir(path_in(state, "t/thread_07"), 0777), 0);
  struct ct_trace *trace = open_trace(state);
  assert_true(ct_trace_is_complete(trace));
  assert_int_equal(ct_trace_thread_count(trace), 13);
  assert_null(ct_trace_thread(trace, 13));
  for (uint32_t i = 0; i < 12; i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(trace, i);
    assert_int_equal(thread->index, i);
    assert_int_equal(thread->tid, 50 + i);
    assert_int_equal(thread->pid, 50);
    assert_int_equal(thread->events, i == 3 ? 1000 : i + 1);
    assert_string_equal(thread->name, i == 3 ? "worker" : "");
  }
  assert_int_equal(ct_trace_thread(trace, 3)->dropped, 7);
  assert_string_equal(ct_trace_thread(trace, 12)->name, "no file");
  struct ct_cursor *cursor;
  const struct ct_event *events;
  assert_int_equal(ct_cursor_open(trace, 12, 0, &cursor, NULL), CT_OK);
  assert_int_equal(ct_cursor_next(cursor, &events), 0);
  assert_int_equal(ct_cursor_state(cursor), CT_CURSOR_DAMAGED);
  ct_cursor_close(cursor);
  assert_string_equal(json_string_value(json_object_get(ct_trace_manifest(trace), "state")), "complete");
  assert_string_equal(ct_trace_path(trace), path_in(state, "t"));
  ct_trace_close(trace);
  json_decref(manifest);
}

static void
test_clock(void **state)
{
  assert_int_equal(mkdir(path_in(state, "t"), 0777), 0);
  write_manifest(state, "{\"format\":\"contrail\",\"version\":1,\"start_ns\":900,\"clock\":{\"tsc0\":10000000,"
                        "\"ns0\":5000000,\"tsc1\":2600010000000,\"ns1\":1000005000000}}");
  struct ct_trace *trace = open_trace(state);
  assert_int_equal(ct_trace_start_ns(trace), 900);
  assert_int_equal(ct_trace_ns(trace, 10000000), 5000000);
  assert_in_range(ct_trace_ns(trace, 2600010000000), 1000004999999, 1000005000000);
  assert_in_range(ct_trace_ns(trace, 10000000 - 2600000), 3999999, 4000001);
  assert_in_range(ct_trace_ticks_ns(trace, 26), 9, 10);
  assert_in_range(ct_trace_ticks_ns(trace, 26000000000000000ull), 9999999999999999ull, 10000000000000000ull);
  ct_trace_close(trace);
}

int
main(void)
{
  /* Mounts of our own, that end with us. */
  if (geteuid() == 0 && unshare(CLONE_NEWNS) == 0) {
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
  }
#define TEST(name) cmocka_unit_test_setup_teardown(name, temporary_setup, temporary_teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_create),
      TEST(test_read_only),
      TEST(test_full_disk),
      TEST(test_full_disk_functions),
      TEST(test_many_threads),
      TEST(test_functions),
      TEST(test_functions_to_come),
      TEST(test_many_functions),
      TEST(test_bad_manifest),
      TEST(test_threads),
      TEST(test_clock),
      TEST(test_oldest_event_goes),
      TEST(test_file_size_limit),
      TEST(test_newer_file),
      TEST(test_stalled_disk),
      TEST(test_replaced_file),
      TEST(test_short_threads),
      TEST(test_full_queue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
