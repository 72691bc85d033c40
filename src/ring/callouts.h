/* SPDX-License-Identifier: MIT */
/*
 * The callouts: what some functions' trampolines do besides recording. This table alone says which there are; from it
 * come enum ct_callout, the addresses in a region's head, the offsets in the head of the agent's image, the agent's
 * list of them (entry.S), and where a trampoline jumps. For assembly too.
 */
#ifndef CT_RING_CALLOUTS_H
#define CT_RING_CALLOUTS_H

/* Entries of the agent, agent_callout_NAME, in the order in which heads have them. */
/* clang-format off */
#define CT_CALLOUT_ENTRIES(X) \
  X(park) X(request) X(find_fde) X(seccomp) X(mlockall) X(syscall) X(go_syscall) X(modules) X(find_object) X(longjmp) \
  X(sigaction) X(write) X(writev) X(copy) X(move) X(remap) X(map) X(arch_prctl) X(gs) X(frames) X(count) X(itrace)

/* X(CT_CALLOUT_..., entry) */
#define CT_CALLOUTS(X) \
  X(PARK, park)                 /* clone, fork: leave gs parked for the child to inherit */ \
  X(EXEC, request)              /* execve: tell the controller first */ \
  X(RENDEZVOUS, request)        /* the loader's r_brk function */ \
  X(FIND_FDE, find_fde)         /* _Unwind_Find_FDE */ \
  X(MODULES, modules)           /* dl_iterate_phdr */ \
  X(FIND_OBJECT, find_object)   /* _dl_find_object */ \
  X(SECCOMP, seccomp)           /* prctl: what hooks do may be forbidden */ \
  X(MLOCKALL, mlockall)         /* lock pages when they are touched, not before */ \
  X(SYSCALL, syscall)           /* syscall(number, ...): exec, clone, prctl, seccomp */ \
  X(GO_SYSCALL, go_syscall)     /* the same of Go's runtime, number in rax: exec */ \
  X(LONGJMP, longjmp)           /* the end of longjmp: rdi points to the registers */ \
  X(SIGACTION, sigaction)       /* sigaction(signal, action, old): the agent's handlers of fatal signals are hidden */ \
  X(WRITE, write)               /* write(descriptor, buffer, bytes) */ \
  X(WRITEV, writev)             /* writev(descriptor, vectors, count) */ \
  X(COPY, copy)                 /* memcpy(to, from, bytes), memmove, mempcpy: perhaps of a stack */ \
  X(MOVE, move)                 /* the function goes to another place on the stack */ \
  X(REMAP, remap)               /* mremap(address, bytes, ...): perhaps of a stack */ \
  X(MMAP, map)                  /* mmap(address, bytes, protection, flags, ...): perhaps over something of ours */ \
  X(MUNMAP, map) \
  X(PROTECT, map)               /* mprotect(address, bytes, protection), pkey_mprotect */ \
  X(ADVISE, map)                /* madvise(address, bytes, advice) */ \
  X(MAKECONTEXT, map)           /* makecontext(context, ...): where a stack is */ \
  X(MAKE_FCONTEXT, map)         /* make_fcontext(end of the stack, bytes, function), of Boost's */ \
  X(FRAMES, frames)             /* the function reads its callers' slots, by rbp */ \
  X(COUNT, count)               /* __mcount_internal(frompc, selfpc) of glibc, which counts calls for -pg */ \
  X(GS, gs)                     /* it sets the base of gs */ \
  X(ARCH_PRCTL, arch_prctl)     /* arch_prctl(code, address) */ \
  X(LIMIT_GET, seccomp)         /* getrlimit(resource, limit) */ \
  X(LIMIT_SET, seccomp)         /* setrlimit(resource, limit) */ \
  X(LIMIT_BOTH, seccomp)        /* prlimit(pid, resource, limit, old) */ \
  X(ITRACE, itrace)             /* calls of it are recorded as instructions, if so many are still wanted */
/* clang-format on */

#endif
