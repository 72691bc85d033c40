/* SPDX-License-Identifier: MIT */
/*
 * Context switches of the target's threads, and how they come into their streams.
 *
 * The kernel writes two records a switch, one when a thread goes and one when it comes, into a ring for each processor.
 * The one that says that a thread goes says whether it could have run on. There is an event for each thread and
 * processor, all of a processor go into its one ring, and threads to come inherit them. Where these would be many, who
 * may watch whole processors (CAP_PERFMON) has one event for each of those.
 *
 * Order. A thread that comes back runs its next hook after the kernel has written that it came. So when these rings are
 * read after events have been copied, every interval before one of these events is known. Records of different
 * processors are brought into order by their times. That a thread came may still be read in one pass and that it went,
 * from another processor's ring, in the next: then the interval is late by a pass.
 *
 * Clock. The kernel's times are of CLOCK_MONOTONIC_RAW, which runs in step with the time stamp counter; pairs of both
 * readings turn the one into the other, to within some 100 ns. An interval is put between the two events that its
 * middle lies between, and cut to them.
 *
 * Without the right to any of it, and after reports were given up (--budget), only sums are known (/proc .. schedstat).
 */
#include "drain/switches.h"

#include "base/clock.h"

#include <contrail/trace.h>

#include <assert.h>
#include <errno.h>
#include <dirent.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static_assert((int)CT_RING_AWAY_HELD == (int)CT_AWAY_HELD && (int)CT_RING_AWAY_ROOM == (int)CT_AWAY_ROOM, "away");

enum {
  DATA_BYTES_MAX = 256 << 10, /* of a processor's ring */
  DATA_BYTES_MIN = 4 << 10,
  RECORD_MAX = 64,        /* bytes of a record that we asked for */
  PENDING_MAX = 1 << 15,  /* intervals of a thread that wait for its next event; the oldest ones are lost then */
  THREADS_MAX = 1 << 16,  /* that are known at one time */
  DEAD_S = 30,            /* so long after its end a thread's events may still come */
  PAIR_NS = 20 * 1000000, /* between two readings of both clocks */
  DESCRIPTORS_KEPT = 256, /* for everything else */
  THREAD_EVENTS = 64,     /* few of them */
};

struct interval {
  uint64_t since, until; /* readings of the time stamp counter */
  uint8_t kind;          /* enum ct_away */
};

/* A thread, by its id. */
struct whereabouts {
  uint32_t tid;
  uint8_t kind;      /* why it went */
  uint64_t out_ns;   /* when it went, 0: it is there, or that is not known */
  uint64_t early_ns; /* when it came, seen before it is known when it went; 0: no such */
  uint64_t exit_ns;  /* when it ended; 0: it has not, as far as is known */
  bool known;        /* the kernel has reported it before */
  bool has_total; /* the next two are set: a reading of the clock, and for how long it had been on the processor then */
  uint64_t total_ns, total_cpu_ns;
  uint64_t total_doubt_ns; /* so long before total_ns it may have been that total_cpu_ns was read */
  uint64_t unknown_until;  /* before the first reading nothing is known, 0: that is in the stream */
  uint64_t carried;        /* ticks of bounds that found no place in the stream */
  struct interval *pending;
  uint32_t count, capacity;
  uint64_t dropped; /* of these, the oldest */
};

struct record {
  uint64_t ns;
  uint32_t tid;
  bool out, preempted, exit;
};

struct processor {
  int fd; /* whose ring it is, -1: none */
  struct perf_event_mmap_page *page;
  const uint8_t *data;
  uint64_t data_bytes, seen; /* seen: up to where it was read */
};

struct drain_switches {
  int pid;
  uint64_t opened_ns;
  struct processor *processors;
  size_t processor_count;
  size_t wanted; /* events for all threads */
  int *fds;      /* those that have no ring of their own */
  size_t fd_count, fd_capacity;
  struct whereabouts **threads; /* a hash table */
  size_t thread_count, thread_capacity;
  struct record *records;
  size_t record_count, record_capacity;
  uint64_t tsc0, ns0, tsc1, ns1; /* pairs of readings, the first and the latest */
  struct ct_switch_stats stats;
  uint64_t given_up_ns; /* 0: the kernel reports them, or never has */
};

/* ---- Clocks ---- */

static uint64_t
raw_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void
read_pair(uint64_t *tsc, uint64_t *ns)
{
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 4; i++) {
    uint64_t before = __builtin_ia32_rdtsc(), middle = raw_ns(), after = __builtin_ia32_rdtsc();
    if (after - before < best) {
      best = after - before;
      *tsc = before + (after - before) / 2;
      *ns = middle;
    }
  }
}

static uint64_t
tsc_of(const struct drain_switches *s, uint64_t ns)
{
  double rate = (double)(s->tsc1 - s->tsc0) / (double)(s->ns1 - s->ns0);
  return s->tsc1 + (uint64_t)(int64_t)((double)(int64_t)(ns - s->ns1) * rate);
}

/* ---- Threads ---- */

static struct whereabouts **
entry_of(struct whereabouts **threads, size_t capacity, uint32_t tid)
{
  size_t at = tid * 2654435761u & (capacity - 1);
  while (threads[at] != NULL && threads[at]->tid != tid) {
    at = (at + 1) & (capacity - 1);
  }
  return &threads[at];
}

static bool
is_past(const struct drain_switches *s, const struct whereabouts *thread)
{
  return thread->exit_ns != 0 && s->ns1 > thread->exit_ns && s->ns1 - thread->exit_ns > DEAD_S * 1000000000ull;
}

/* Without those that have ended and never had an event. */
static bool
grow_table(struct drain_switches *s)
{
  size_t capacity = s->thread_capacity != 0 ? s->thread_capacity * 2 : 64;
  struct whereabouts **threads = calloc(capacity, sizeof(*threads));
  if (threads == NULL) {
    return false;
  }
  for (size_t i = 0; i < s->thread_capacity; i++) {
    if (s->threads[i] != NULL && is_past(s, s->threads[i])) {
      free(s->threads[i]->pending);
      free(s->threads[i]);
      s->thread_count--;
    } else if (s->threads[i] != NULL) {
      *entry_of(threads, capacity, s->threads[i]->tid) = s->threads[i];
    }
  }
  free(s->threads);
  s->threads = threads;
  s->thread_capacity = capacity;
  return true;
}

/* Made when it is new; NULL when it cannot be. */
static struct whereabouts *
thread_of(struct drain_switches *s, uint32_t tid)
{
  if (s->thread_count * 2 >= s->thread_capacity && (s->thread_count >= THREADS_MAX || !grow_table(s))) {
    return NULL;
  }
  struct whereabouts **entry = entry_of(s->threads, s->thread_capacity, tid);
  if (*entry == NULL && (*entry = calloc(1, sizeof(**entry))) != NULL) {
    (*entry)->tid = tid;
    s->thread_count++;
  }
  return *entry;
}

static void
forget_thread(struct drain_switches *s, uint32_t tid)
{
  struct whereabouts **entry = entry_of(s->threads, s->thread_capacity, tid);
  free((*entry)->pending);
  free(*entry);
  *entry = NULL;
  s->thread_count--;
  /* Those after it may have been put there because it was in their place. */
  size_t at = (size_t)(entry - s->threads);
  for (at = (at + 1) & (s->thread_capacity - 1); s->threads[at] != NULL; at = (at + 1) & (s->thread_capacity - 1)) {
    struct whereabouts *moved = s->threads[at];
    s->threads[at] = NULL;
    *entry_of(s->threads, s->thread_capacity, moved->tid) = moved;
  }
}

static void
drop_first(struct whereabouts *w, uint32_t count)
{
  w->count -= count;
  memmove(w->pending, w->pending + count, w->count * sizeof(*w->pending));
}

/*
 * In order of their ends, which is that in which they are reported but for those that were contrail's own. They are
 * never written before the events that come next: the drain may be seconds behind, and time does not run backwards. A
 * thread without events waits for them in vain.
 */
static void
push(struct whereabouts *thread, struct interval interval)
{
  if (thread->count == PENDING_MAX) {
    thread->dropped += PENDING_MAX / 2;
    drop_first(thread, PENDING_MAX / 2);
  }
  if (thread->count == thread->capacity) {
    uint32_t capacity = thread->capacity != 0 ? thread->capacity * 2 : 8;
    struct interval *pending = reallocarray(thread->pending, capacity, sizeof(*pending));
    if (pending == NULL) {
      return;
    }
    thread->pending = pending;
    thread->capacity = capacity;
  }
  uint32_t at = thread->count++;
  for (; at > 0 && thread->pending[at - 1].until > interval.until; at--) {
    thread->pending[at] = thread->pending[at - 1];
  }
  thread->pending[at] = interval;
}

/* ---- What the kernel reports ---- */

static void
went_or_came(struct drain_switches *s, const struct record *record)
{
  struct whereabouts *thread = thread_of(s, record->tid);
  uint8_t kind = record->preempted ? CT_AWAY_PREEMPTED : CT_AWAY_BLOCKED;
  if (thread == NULL) {
    s->stats.lost++;
  } else if (record->exit) {
    thread->exit_ns = record->ns;
  } else if (record->out && thread->early_ns > record->ns) {
    push(thread, (struct interval){tsc_of(s, record->ns), tsc_of(s, thread->early_ns), kind});
    thread->early_ns = 0;
  } else if (record->out) {
    thread->out_ns = record->ns;
    thread->kind = kind;
  } else if (thread->out_ns != 0) {
    push(thread, (struct interval){tsc_of(s, thread->out_ns), tsc_of(s, record->ns), thread->kind});
    thread->out_ns = 0;
  } else if (!thread->known) { /* it was off the processor all the time; a new thread has no calls before this */
    push(thread, (struct interval){tsc_of(s, s->opened_ns), tsc_of(s, record->ns), CT_AWAY_BLOCKED});
  } else {
    thread->early_ns = record->ns;
  }
  if (thread != NULL) {
    thread->known = true;
    thread->exit_ns = record->exit || record->out ? thread->exit_ns : 0; /* who comes is another one with that id */
  }
  s->stats.switches += record->out;
}

static void
keep_record(struct drain_switches *s, const uint8_t *bytes, const struct perf_event_header *header)
{
  uint32_t ids[2];
  bool is_exit = header->type == PERF_RECORD_EXIT;
  struct record record = {.exit = is_exit,
                          .out = !is_exit && (header->misc & PERF_RECORD_MISC_SWITCH_OUT) != 0,
                          .preempted = !is_exit && (header->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) != 0};
  if (header->type == PERF_RECORD_LOST && header->size >= 24) {
    uint64_t lost;
    memcpy(&lost, bytes + 16, sizeof(lost));
    s->stats.lost += lost;
    return;
  }
  if ((header->type != PERF_RECORD_SWITCH && header->type != PERF_RECORD_SWITCH_CPU_WIDE && !is_exit) ||
      header->size < 24 || header->size > RECORD_MAX) {
    return;
  }
  memcpy(ids, bytes + header->size - 16, sizeof(ids));
  memcpy(&record.ns, bytes + header->size - 8, sizeof(record.ns));
  record.tid = ids[1];
  if (ids[0] != (uint32_t)s->pid) {
    return;
  }
  if (s->record_count == s->record_capacity) {
    size_t capacity = s->record_capacity != 0 ? s->record_capacity * 2 : 256;
    struct record *records = reallocarray(s->records, capacity, sizeof(*records));
    if (records == NULL) {
      s->stats.lost++;
      return;
    }
    s->records = records;
    s->record_capacity = capacity;
  }
  s->records[s->record_count++] = record;
}

static void
read_processor(struct drain_switches *s, struct processor *processor)
{
  /* acquire: the records before head are there */
  uint64_t head = __atomic_load_n(&processor->page->data_head, __ATOMIC_ACQUIRE), mask = processor->data_bytes - 1;
  if (head == processor->seen) {
    return;
  }
  while (processor->seen < head) {
    uint8_t bytes[RECORD_MAX];
    struct perf_event_header header;
    memcpy(&header, processor->data + (processor->seen & mask), sizeof(header)); /* records are multiples of 8 */
    if (header.size < sizeof(header)) {
      processor->seen = head;
      break;
    }
    for (size_t i = 0; i < header.size && i < sizeof(bytes); i++) {
      bytes[i] = processor->data[(processor->seen + i) & mask];
    }
    if (header.size <= sizeof(bytes)) {
      keep_record(s, bytes, &header);
    }
    processor->seen += header.size;
  }
  /* release: we have read what the kernel may write over now */
  __atomic_store_n(&processor->page->data_tail, processor->seen, __ATOMIC_RELEASE);
}

static int
compare_records(const void *a, const void *b)
{
  const struct record *x = a, *y = b;
  return x->ns != y->ns ? (x->ns < y->ns ? -1 : 1) : (int)y->out - (int)x->out;
}

void
drain_switches_read(struct drain_switches *s)
{
  for (int sweep = 0; sweep < 2; sweep++) {
    for (size_t i = 0; i < s->processor_count; i++) {
      if (s->processors[i].fd >= 0) {
        read_processor(s, &s->processors[i]);
      }
    }
    if (s->record_count == 0) {
      return;
    }
  }
  uint64_t now = raw_ns();
  if (now - s->ns1 > PAIR_NS || s->ns1 == s->ns0) {
    read_pair(&s->tsc1, &s->ns1);
  }
  qsort(s->records, s->record_count, sizeof(*s->records), compare_records);
  for (size_t i = 0; i < s->record_count; i++) {
    went_or_came(s, &s->records[i]);
  }
  s->record_count = 0;
}

/* ---- Opening ---- */

/* New threads have it too; kernels before 5.13 know of no way to say that new processes do not. */
static int
open_event(pid_t tid, int cpu)
{
  struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                 .size = sizeof(attr),
                                 .config = PERF_COUNT_SW_DUMMY,
                                 .sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
                                 .exclude_kernel = 1,
                                 .exclude_hv = 1,
                                 .inherit = tid > 0,
                                 .inherit_thread = tid > 0,
                                 .sample_id_all = 1,
                                 .context_switch = 1,
                                 .task = 1, /* when threads end */
                                 .use_clockid = 1,
                                 .clockid = CLOCK_MONOTONIC_RAW};
  int fd = (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0 && errno == EINVAL && attr.inherit_thread) {
    attr.inherit_thread = 0;
    fd = (int)syscall(SYS_perf_event_open, &attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
  }
  return fd;
}

/* The processor's ring. Everybody may have so much of them locked (perf_event_mlock_kb); less if that is used up. */
static int
map_ring(struct processor *processor, int fd)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t bytes = DATA_BYTES_MAX; bytes >= DATA_BYTES_MIN; bytes /= 2) {
    void *at = mmap(NULL, page + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) {
      *processor = (struct processor){.fd = fd, .page = at, .data = (const uint8_t *)at + page, .data_bytes = bytes};
      return 0;
    }
  }
  return -errno;
}

static int
keep_fd(struct drain_switches *s, int fd)
{
  if (s->fd_count == s->fd_capacity) {
    size_t capacity = s->fd_capacity != 0 ? s->fd_capacity * 2 : 64;
    int *fds = reallocarray(s->fds, capacity, sizeof(*fds));
    if (fds == NULL) {
      return -ENOMEM;
    }
    s->fds = fds;
    s->fd_capacity = capacity;
  }
  s->fds[s->fd_count++] = fd;
  return 0;
}

/* One event, of a thread (tid -1: of all) on a processor. 0, also where there is no such processor or thread. */
static int
watch(struct drain_switches *s, pid_t tid, size_t cpu)
{
  int fd = open_event(tid, (int)cpu);
  if (fd < 0) {
    return errno == ENODEV || errno == ESRCH ? 0 : -errno;
  }
  struct processor *processor = &s->processors[cpu];
  int code = 0;
  if (processor->fd < 0) {
    code = map_ring(processor, fd);
    if (code != 0) {
      close(fd);
    }
    return code;
  }
  code = ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, processor->fd) != 0 ? -errno : keep_fd(s, fd);
  if (code != 0) {
    close(fd);
  }
  return code;
}

static void
unwatch(struct drain_switches *s)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < s->fd_count; i++) {
    close(s->fds[i]);
  }
  s->fd_count = 0;
  for (size_t i = 0; i < s->processor_count; i++) {
    if (s->processors[i].fd >= 0) {
      munmap(s->processors[i].page, page + s->processors[i].data_bytes);
      close(s->processors[i].fd);
      s->processors[i].fd = -1;
    }
  }
}

static int
watch_processors(struct drain_switches *s)
{
  int code = 0;
  for (size_t cpu = 0; cpu < s->processor_count && code == 0; cpu++) {
    code = watch(s, -1, cpu);
  }
  return code;
}

/* So many descriptors more: the soft limit goes up, if the hard one lets it. */
static bool
have_descriptors(size_t more)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return false;
  }
  size_t need = more + DESCRIPTORS_KEPT;
  if (limit.rlim_cur < limit.rlim_max && limit.rlim_cur < need * 2) {
    limit.rlim_cur = need * 2 < limit.rlim_max ? need * 2 : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur >= need;
}

/* Of each thread that there is, with a call. */
static int
each_thread(struct drain_switches *s, int (*call)(struct drain_switches *, pid_t))
{
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task", s->pid);
  DIR *tasks = opendir(path);
  if (tasks == NULL) {
    return -errno;
  }
  int code = 0;
  const struct dirent *entry;
  while (code == 0 && (entry = readdir(tasks)) != NULL) {
    pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
    code = tid > 0 ? call(s, tid) : 0;
  }
  closedir(tasks);
  return code;
}

static int
count_thread(struct drain_switches *s, pid_t tid)
{
  (void)tid;
  s->wanted += s->processor_count;
  return 0;
}

static int
watch_thread(struct drain_switches *s, pid_t tid)
{
  int code = have_descriptors(s->wanted) ? 0 : -EMFILE;
  for (size_t cpu = 0; cpu < s->processor_count && code == 0; cpu++) {
    code = watch(s, tid, cpu);
  }
  return code;
}

/*
 * Few events watch just the threads. Where it would be many, whole processors are watched, if we may: that costs others
 * a record at each of their switches, but no new thread of the program anything.
 */
static int
watch_all(struct drain_switches *s)
{
  int code = each_thread(s, count_thread);
  if (code == 0 && s->wanted > THREAD_EVENTS) {
    s->stats.source = CT_SWITCHES_PROCESSORS;
    code = watch_processors(s);
    if (code == 0) {
      return 0;
    }
    unwatch(s);
  }
  s->stats.source = CT_SWITCHES_THREADS;
  return each_thread(s, watch_thread);
}

struct drain_switches *
drain_switches_open(int pid)
{
  struct drain_switches *s = calloc(1, sizeof(*s));
  long count = sysconf(_SC_NPROCESSORS_CONF);
  if (s == NULL) {
    return NULL;
  }
  s->pid = pid;
  s->processor_count = count > 0 ? (size_t)count : 1;
  s->processors = calloc(s->processor_count, sizeof(*s->processors));
  if (s->processors == NULL || !grow_table(s)) {
    drain_switches_close(s);
    return NULL;
  }
  for (size_t i = 0; i < s->processor_count; i++) {
    s->processors[i].fd = -1;
  }
  read_pair(&s->tsc0, &s->ns0);
  s->opened_ns = s->ns1 = s->ns0;
  s->tsc1 = s->tsc0;
  int code = watch_all(s);
  if (code != 0) {
    unwatch(s);
    s->stats.source = CT_SWITCHES_TOTALS;
    s->stats.error = -code;
  }
  return s;
}

void
drain_switches_close(struct drain_switches *s)
{
  if (s == NULL) {
    return;
  }
  if (s->processors != NULL) {
    unwatch(s);
  }
  for (size_t i = 0; i < s->thread_capacity; i++) {
    if (s->threads[i] != NULL) {
      free(s->threads[i]->pending);
      free(s->threads[i]);
    }
  }
  free(s->threads);
  free(s->records);
  free(s->processors);
  free(s->fds);
  free(s);
}

struct ct_switch_stats
drain_switches_stats(const struct drain_switches *s)
{
  return s != NULL ? s->stats : (struct ct_switch_stats){.source = CT_SWITCHES_TOTALS, .error = ENOMEM};
}

void
drain_switches_give_up(struct drain_switches *s)
{
  if (s->stats.source != CT_SWITCHES_THREADS && s->stats.source != CT_SWITCHES_PROCESSORS) {
    return;
  }
  drain_switches_read(s);
  unwatch(s);
  read_pair(&s->tsc1, &s->ns1);
  s->given_up_ns = s->ns1;
  s->stats.source = CT_SWITCHES_TOTALS;
  s->stats.is_given_up = true;
  for (size_t i = 0; i < s->thread_capacity; i++) {
    struct whereabouts *w = s->threads[i];
    if (w != NULL && w->out_ns != 0) {
      push(w, (struct interval){tsc_of(s, w->out_ns), s->tsc1, w->kind});
    }
    if (w != NULL) {
      w->out_ns = w->early_ns = 0;
    }
  }
}

/* ---- Into the stream ---- */

/*
 * A bound: its begin is no time, and it stands where it ends. Readers take it for all that lies between it and the one
 * before, or the thread's first event. So what has no place here goes to the next one; and before the first reading,
 * which may come late on a busy machine, the thread may have been off the processor all the time.
 */
static void
encode_bound(struct whereabouts *w, struct drain_thread *thread, struct interval interval, uint64_t next)
{
  if (thread->last_clock == 0) {
    return;
  }
  uint64_t off = interval.until - interval.since + w->carried;
  if (interval.until > next) {
    w->carried = off;
    return;
  }
  off += w->unknown_until > thread->first_clock ? w->unknown_until - thread->first_clock : 0;
  off = off < interval.until ? off : interval.until;
  ct_encode_away(thread->encoder, interval.until - off, interval.until, interval.kind);
  w->carried = w->unknown_until = 0;
}

/* Cut to the events on both sides; what lies before the thread's first one is in no call. */
static void
encode_interval(struct whereabouts *w, struct drain_thread *thread, struct interval interval, uint64_t next)
{
  if (interval.kind == CT_AWAY_SOME) {
    encode_bound(w, thread, interval, next);
    return;
  }
  uint64_t since = interval.since > thread->last_clock ? interval.since : thread->last_clock;
  uint64_t until = interval.until < next ? interval.until : next;
  if (thread->last_clock != 0 && since < until) {
    if (thread->rules != NULL && thread->rules->offs != 0 && interval.kind != CT_AWAY_HELD) {
      rules_off(thread, since, until);
    }
    ct_encode_away(thread->encoder, since, until, interval.kind);
  }
}

/* An event that says that contrail kept the thread waiting until now: all of that is ours, off the processor or on. */
static uint64_t
begin_of_own(const struct ct_ring_event *event)
{
  uint32_t fn = (uint32_t)event->word >> CT_WORD_FN_SHIFT;
  bool is_own = (event->word >> CT_WORD_KIND_SHIFT & 3) == CT_KIND_OTHER && (fn & CT_FN_POINT_BIT) == 0 &&
                (fn & 0xf) == CT_OTHER_AWAY;
  return is_own ? event->tsc - ((event->word >> 32) << CT_AWAY_SHIFT) : event->tsc;
}

static void
encode_some(struct drain_thread *thread, const struct ct_ring_event *events, size_t count, const uint8_t *modes,
            uint32_t function_count)
{
  drain_thread_events(thread, events, count, modes, function_count);
  for (size_t i = 0; i < count && thread->first_clock == 0; i++) {
    thread->first_clock = drain_event_has_clock(&events[i]) ? events[i].tsc : 0;
  }
  for (size_t i = count; i-- > 0;) {
    if (drain_event_has_clock(&events[i])) {
      thread->last_clock = events[i].tsc;
      break;
    }
  }
}

void
drain_switches_encode(struct drain_switches *s, struct drain_thread *thread, const struct ct_ring_event *events,
                      size_t count, const uint8_t *modes, uint32_t function_count)
{
  struct whereabouts *w = NULL;
  if (s != NULL) {
    drain_switches_read(s);
    w = thread_of(s, thread->outside);
  }
  if (w != NULL && w->dropped != 0) {
    s->stats.lost += thread->last_clock != 0 ? w->dropped : 0; /* before its first event it is in no call */
    w->dropped = 0;
  }
  size_t begin = 0;
  uint32_t done = 0;
  while (w != NULL && done < w->count) {
    const struct interval *interval = &w->pending[done];
    uint64_t middle = interval->since + (interval->until - interval->since) / 2;
    middle = interval->kind == CT_AWAY_SOME ? interval->until : middle;
    size_t at = begin;
    while (at < count && !(drain_event_has_clock(&events[at]) && events[at].tsc > middle)) {
      at++;
    }
    if (at == count) {
      break;
    }
    encode_some(thread, events + begin, at - begin, modes, function_count);
    encode_interval(w, thread, *interval, begin_of_own(&events[at]));
    begin = at;
    done++;
  }
  encode_some(thread, events + begin, count - begin, modes, function_count);
  if (w != NULL && done != 0) {
    drop_first(w, done);
  }
}

void
drain_switches_add_stop(struct drain_switches *s, const struct drain_thread *thread, uint64_t since, uint64_t until)
{
  struct whereabouts *w = s != NULL ? thread_of(s, thread->outside) : NULL;
  if (w != NULL) {
    push(w, (struct interval){since, until, CT_AWAY_HELD});
  }
}

void
drain_switches_total(struct drain_switches *s, const struct drain_thread *thread, uint64_t cpu_ns, uint64_t asked_ns)
{
  struct whereabouts *w = s != NULL && s->stats.source == CT_SWITCHES_TOTALS ? thread_of(s, thread->outside) : NULL;
  struct timespec tick; /* what runs is counted in at the next tick, or when it stops */
  if (w == NULL || clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0) {
    return;
  }
  read_pair(&s->tsc1, &s->ns1);
  uint64_t wall = s->ns1 - w->total_ns, cpu = cpu_ns - w->total_cpu_ns;
  if (w->has_total && s->ns1 > s->ns0) {
    uint64_t off = (wall > cpu ? wall - cpu : 0) + (uint64_t)tick.tv_nsec + w->total_doubt_ns;
    off = off < wall ? off : wall;
    push(w, (struct interval){tsc_of(s, s->ns1 - off), s->tsc1, CT_AWAY_SOME});
  }
  if (!w->has_total && w->known && s->given_up_ns != 0) { /* known until then; it may have been off ever since */
    push(w, (struct interval){tsc_of(s, s->given_up_ns), s->tsc1, CT_AWAY_SOME});
  } else if (!w->has_total) {
    w->unknown_until = s->tsc1;
  }
  w->has_total = true;
  w->total_ns = s->ns1;
  w->total_cpu_ns = cpu_ns;
  w->total_doubt_ns = ct_now_ns() - asked_ns;
}

uint64_t
drain_switches_end(struct drain_switches *s, struct drain_thread *thread, uint64_t until, bool lives)
{
  if (s == NULL) {
    return 0;
  }
  drain_switches_read(s);
  struct whereabouts *w = thread_of(s, thread->outside);
  if (w == NULL) {
    return 0;
  }
  uint64_t exit = w->exit_ns != 0 && !lives ? tsc_of(s, w->exit_ns) : 0;
  for (uint32_t i = 0; i < w->count; i++) {
    encode_interval(w, thread, w->pending[i], until);
  }
  if (lives && w->out_ns != 0) {
    encode_interval(w, thread, (struct interval){tsc_of(s, w->out_ns), until, w->kind}, until);
  }
  forget_thread(s, thread->outside);
  return exit;
}
