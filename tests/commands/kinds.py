# SPDX-License-Identifier: MIT
"""More of the long set: runtimes, interpreters, compilers, servers and tools of kinds that are nowhere else in it."""
from commands.case import Cases

cases = Cases("kinds")

cases("tcc: compiled and run in memory", r"""
t tcc -run fib.c 24; echo $?
t tcc -b -run wild.c >/dev/null 2>&1; echo $?
t tcc -o fib fib.c; echo $?; t ./fib 20; echo $?
""", needs="tcc", prepare=r"""
cat >fib.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <signal.h>
static sigjmp_buf out;
static void caught(int s) { siglongjmp(out, s); }
long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(int c, char **v) { signal(SIGSEGV, caught); printf("%ld\n", fib(atol(v[1]))); int s = sigsetjmp(out, 1); if (!s) *(volatile int *)8 = 1; printf("signal %d\n", s); return 5; }
END
echo 'int main(void) { int a[4], *p = a; p[9] = 1; return 0; }' >wild.c
""", shows=["46368", "signal 11"])

LISP = r"""
cat >run.lisp <<'END'
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(defun deep (n) (if (zerop n) 0 (1+ (deep (1- n)))))
(format t "~a ~a~%" (fib 20) (deep 5000))
(format t "~a~%" (handler-case (error "no") (error () :caught)))
(format t "~a~%" (catch 'out (mapcar (lambda (x) (when (> x 5) (throw 'out x))) '(1 2 3 7 9))))
(format t "~a~%" (let ((h (make-hash-table))) (dotimes (i 20000) (setf (gethash i h) (* i i))) (gethash 777 h)))
(let ((all nil)) (dotimes (i 300) (push (make-array 10000) all) (when (> (length all) 20) (setf all nil))))
(format t "~a~%" (expt 7 300))
(finish-output)
END
"""
cases("clisp, ecl: conditions, garbage, deep recursion", r"""
t clisp -q -norc run.lisp; echo $?
t clisp -q -norc -C run.lisp; echo $?
t ecl --norc --shell run.lisp; echo $?
""", needs="clisp ecl", prepare=LISP, shows=["6765 5000", "CAUGHT"])

cases("sbcl: threads, faults, garbage", r"""
t sbcl --noinform --non-interactive --no-userinit --load run.lisp; echo $?
t sbcl --noinform --non-interactive --no-userinit --eval '(progn (print (handler-case (sb-sys:sap-ref-8 (sb-sys:int-sap 8) 0) (error () :fault)))
  (print (handler-case (labels ((f (n) (1+ (f (1+ n))))) (f 0)) (storage-condition () :deep)))
  (print (loop for a in (loop for i below 4 collect (let ((i i)) (sb-thread:make-thread (lambda () (loop for k below 200000 sum (mod k (+ i 2))))))) collect (sb-thread:join-thread a)))
  (gc :full t) (sb-ext:exit :code 4))' 2>/dev/null; echo $?
""", needs="sbcl", prepare=LISP, shows=["6765 5000", ":FAULT", ":DEEP"])

cases("scheme: chicken, gambit: continuations", r"""
t csi -q -s run.scm; echo $?
t gsi run.scm; echo $?
""", needs="csi gsi", prepare=r"""
cat >run.scm <<'END'
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(display (fib 20)) (newline)
(define again #f) (define count 0)
(display (+ 1 (call-with-current-continuation (lambda (k) (set! again k) 0)))) (newline)
(set! count (+ count 1))
(if (< count 200) (again count))
(define (deep n) (if (= n 0) 0 (+ 1 (deep (- n 1)))))
(display (deep 100000)) (newline)
(display (vector-length (make-vector 1000000 1))) (newline)
END
""", shows=["6765", "100000"])

cases("prolog: swipl", r"""
t swipl -q -f none -g main -t 'halt(6)' run.pl; echo $?
t swipl -q -f none -g 'catch(call_with_time_limit(0.3, (repeat, fail)), E, (print_message(silent, E), write(caught), nl)), halt(2)' -t 'halt(1)' 2>/dev/null; echo $?
""", needs="swipl", prepare=r"""
cat >run.pl <<'END'
queens(N, Qs) :- numlist(1, N, Ns), permutation(Ns, Qs), safe(Qs).
safe([]). safe([Q|Qs]) :- no_attack(Q, Qs, 1), safe(Qs).
no_attack(_, [], _). no_attack(Q, [Q1|Qs], D) :- Q =\= Q1 + D, Q =\= Q1 - D, D1 is D + 1, no_attack(Q, Qs, D1).
count(0) :- !. count(N) :- M is N - 1, count(M).
main :- queens(6, Q), write(Q), nl, count(300000), X is 7 ** 200, write(X), nl,
        catch(atom_length(_, _), error(E, _), (write(E), nl)), findall(A, between(1, 20000, A), L), sum_list(L, S), write(S), nl,
        thread_create((numlist(1, 5000, K), sum_list(K, T), thread_exit(T)), Id), thread_join(Id, R), write(R), nl,
        catch(deep(1), error(resource_error(W), _), (write(W), nl)).
deep(N) :- M is N + 1, deep(M), write(M).
END
""", shows=["[2,4,6,1,3,5]", "instantiation_error"], timeout=120)

cases("erlang: schedulers, processes, ports", r"""
t erl +S 2 -noshell -noinput -eval '
  F = fun Ping(0) -> done; Ping(N) -> Self = self(), P = spawn(fun() -> Self ! {self(), N} end), receive {P, N} -> ok end, Ping(N - 1) end,
  io:format("~p~n", [F(3000)]),
  {_, {R, _}} = (catch error(oops)), io:format("~p~n", [R]),
  io:format("~p~n", [lists:sum([X * X || X <- lists:seq(1, 100000)])]),
  io:format("~s", [os:cmd("echo port")]), erlang:garbage_collect(),
  io:format("~p~n", [erlang:crc32(binary:copy(<<"abc">>, 100000))]), halt(7).'; echo $?
""", needs="erl", shows=["done", "333338333350000", "port"], timeout=120)

cases("mono: mcs, a program with threads and exceptions", r"""
t mcs -nologo run.cs; echo $?
t mono run.exe; echo $?
""", needs="mcs mono", ignore=[("run.exe", "it has its time and an id of its own"), (".wapi*", "shared state of the runtime")], prepare=r"""
cat >run.cs <<'END'
using System; using System.Linq; using System.Threading; using System.Collections.Generic;
class P {
  static int Deep(int n) { return n == 0 ? 0 : 1 + Deep(n - 1); }
  static int Main() {
    Console.WriteLine(Deep(5000));
    string s = null; try { Console.WriteLine(s.Length); } catch (NullReferenceException) { Console.WriteLine("null"); }
    int z = 0; try { Console.WriteLine(5 / z); } catch (DivideByZeroException) { Console.WriteLine("zero"); }
    long sum = 0; var all = Enumerable.Range(0, 4).Select(i => new Thread(() => { for (int k = 0; k < 100000; k++) Interlocked.Add(ref sum, k % (i + 2)); })).ToList();
    all.ForEach(t => t.Start()); all.ForEach(t => t.Join()); Console.WriteLine(sum);
    for (int i = 0; i < 200; i++) { var b = new List<byte[]>(); for (int k = 0; k < 50; k++) b.Add(new byte[1000]); if (i % 50 == 0) GC.Collect(); }
    return 9; } }
END
""", shows=["null", "zero"], timeout=120)

cases("qemu-user: a static program, translated", r"""
t qemu-x86_64 ./hello; echo $?
""", needs="qemu-x86_64 gcc", prepare=r"""
echo '#include <stdio.h>
int main(void) { long s = 0; for (int i = 0; i < 1000000; i++) s += i % 7; printf("%ld\n", s); return 3; }' >hello.c
gcc -O1 -static -o hello hello.c
""", shows=["2999997"], notes="it uses gs, and contrail says so")

cases("bwrap, fakeroot, faketime, proot, eatmydata", r"""
t bwrap --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --unshare-all --die-with-parent sh -c 'echo $$; id -u; ls /tmp | wc -l; exit 4'; echo $?
t fakeroot sh -c 'touch a; chown 0:0 a; stat -c "%u %g" a; mknod dev c 1 3; stat -c "%F %t %T" dev; exit 5'; echo $?
t faketime '2020-02-03 04:05:06' date -u +%F; echo $?
t proot -b /usr:/mnt ls -d /mnt/bin; echo $?
""", needs="bwrap fakeroot faketime proot root", shows=["character special file 1 3", "2020-02-03"],
      notes="proot traces its children, which nobody else can then")

cases("tmux, screen: a server, its panes", r"""
export TMUX_TMPDIR=$HOME TERM=xterm SCREENDIR=$HOME/screens; mkdir -m 700 screens
t tmux -f /dev/null -L one new-session -d -x 80 -y 10 'echo in a pane; read x; echo got $x; read y'; echo $?
pane() { tmux -L one capture-pane -p | grep -q "$1"; }
wait_for pane 'in a pane'; tmux -L one send-keys word Enter; wait_for pane '^got word'
tmux -L one split-window -h 'echo second; read z'; tmux -L one list-panes -F '#{pane_width}x#{pane_height}'
tmux -L one capture-pane -p -t 0 | grep -v '^$'; tmux -L one kill-server; echo $?
gone() { ! tmux -L one ls >/dev/null 2>&1; }
wait_for gone; rm -rf tmux-* screens
""", needs="tmux", shows=["got word"])

cases("ssh-agent, ssh-add; gpg with its agent", r"""
eval $(t ssh-agent -a $HOME/agent.sock -s) >/dev/null; echo $?
ssh-keygen -q -t ed25519 -N '' -C key -f key; t ssh-add -q key; echo $?; ssh-add -l | cut -d' ' -f3-; t ssh-add -q -D; t ssh-add -l; echo $?
kill $SSH_AGENT_PID; rm -f key key.pub
export GNUPGHOME=/tmp/contrail-torture-gpg.$PPID; rm -rf $GNUPGHOME; mkdir -m 700 $GNUPGHOME
t gpg-agent --homedir $GNUPGHOME --daemon --quiet >/dev/null 2>&1; echo $?
t gpg --batch -q --passphrase '' --quick-gen-key 'A <a@b.c>' ed25519 sign never 2>/dev/null; echo $?
echo text | t gpg --batch -q --clearsign | gpg -q --verify 2>&1 | grep -c 'Good signature'
gpgconf --kill all; rm -rf $GNUPGHOME
""", needs="ssh-agent gpg gpg-agent", shows=["key (ED25519)"], ignore=[("agent.sock", "a socket")])

cases("imagemagick, sox, ffmpeg: pictures and sound", r"""
t convert -size 200x150 plasma:red-blue -seed 5 -resize 50% -blur 0x3 -rotate 10 ppm:a.ppm; echo $?
t convert -size 120x90 gradient:green-yellow -swirl 60 b.png; echo $?; t identify -format '%m %wx%h\n' b.png
t convert b.png -quality 80 b.jpg; t compare -metric AE b.png b.png null: 2>&1; echo; echo $?
t sox -R -D -n -r 8000 -b 16 s.wav synth 1 sine 300-900; echo $?; t sox s.wav -n stat 2>&1 | head -3
t ffmpeg -nostdin -v error -f lavfi -i testsrc=d=1:s=128x96:r=10 -c:v mpeg4 -threads 2 -flags +bitexact -fflags +bitexact v.avi; echo $?
t ffmpeg -nostdin -v error -i v.avi -f framemd5 -; echo $?
""", needs="convert identify compare sox ffmpeg", ignore=[("a.ppm", "plasma is made at random"), ("b.png", "has its time")], timeout=120)

cases("spatch, wat2wasm and its interpreter, unison", r"""
t spatch --very-quiet --sp-file s.cocci -o new.c c.c >/dev/null; echo $?; cat new.c
t wat2wasm w.wat -o w.wasm; echo $?; t wasm-interp w.wasm --run-all-exports; echo $?; t wasm2wat w.wasm | wc -l
mkdir one two; echo a >one/a; echo b >two/b; UNISON=$HOME/.unison t unison one two -batch -silent; echo $?; ls one two; rm -rf .unison
""", needs="spatch wat2wasm wasm-interp unison", prepare=r"""
printf '@@ expression e; @@\n- old(e)\n+ new_call(e, 0)\n' >s.cocci
printf 'int f(int x)\n{\n\tif (x)\n\t\told(x + 1);\n\treturn old(2);\n}\n' >c.c
cat >w.wat <<'END'
(module (func $fib (param i32) (result i32) (if (result i32) (i32.lt_s (local.get 0) (i32.const 2)) (then (local.get 0))
  (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1))) (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
  (func (export "run") (result i32) (call $fib (i32.const 18))) (func (export "trap") (result i32) (i32.div_s (i32.const 1) (i32.const 0))))
END
""", shows=["i32:2584", "new_call(x + 1, 0)"])

cases("made by GHC: pandoc, shellcheck", r"""
t pandoc -f markdown -t html d.md; echo $?
t pandoc -f html -t latex p.html; echo $?
t shellcheck s.sh; echo $?
""", needs="pandoc shellcheck", prepare=r"""
printf '# A\n\ntext *with* `code`\n\n1. one\n2. two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n' >d.md
echo '<h1>A</h1><p>b <b>c</b> $5</p>' >p.html
printf '#!/bin/sh\nfor f in $(ls); do echo $f; done\n[ $x == 1 ]\n' >s.sh
""", shows=["<em>with</em>", "SC2086"], timeout=120)

cases("solvers and mathematics: minisat, maxima, octave, gnuplot, poly", r"""
printf 'p cnf 3 4\n1 -2 0\n2 3 0\n-1 -3 0\n-2 -3 0\n' >s.cnf; t minisat -verb=0 s.cnf out; echo $?; cat out
t maxima --very-quiet --batch-string='integrate(x^2*sin(x), x); factor(2^67-1); errcatch(1/0);' | tail -8; echo ${PIPESTATUS[0]}
t octave-cli --no-gui --norc --eval 'A = magic(6); disp(rank(A)); disp(det(magic(3))); x = fft(ones(1, 8)); disp(real(x(1))); try; error("no"); catch e; disp(e.message); end' 2>&1; echo $?
echo 'plot sin(x)' | t gnuplot -e 'set terminal dumb 60 15'; echo $?
echo 'fun f 0 = 0 | f n = 1 + f (n - 1); f 200000; (raise Fail "x") handle Fail s => 3; 1 div 0;' | t poly; echo $?
echo 'digraph { a -> b -> c; a -> c }' | t dot -Tplain; echo $?
""", needs="minisat maxima octave-cli gnuplot poly dot", shows=["761838257287", "200000"], timeout=200)

cases("shells: tcsh, ksh", r"""
t tcsh -f -c 'set a = (3 1 2); foreach x ($a); echo $x; end; @ s = 5 * 7; echo $s; exit 6'; echo $?
t tcsh -f t.csh; echo $?
t ksh -c 'typeset -i s=0; for i in {1..2000}; do (( s += i )); done; echo $s; trap "echo bye" EXIT; x=$(echo sub | tr a-z A-Z); echo $x; function f { return 3; }; f; echo $?; (exit 4); exit $?'; echo $?
""", needs="tcsh ksh", prepare="printf 'foreach x (1 2)\\necho $x | cat\\nend\\nkill -TERM $$\\n' >t.csh", shows=["2001000", "SUB", "bye"])

cases("servers: mosquitto, dnsmasq, unbound, socat", r"""
t mosquitto -c m.conf >/dev/null 2>&1 & m=$!
tried() { mosquitto_pub -h 127.0.0.1 -p 18831 -t a -m b 2>/dev/null; }
wait_for tried
t mosquitto_sub -h 127.0.0.1 -p 18831 -t 'c/#' -C 20 >got & s=$!
there() { mosquitto_pub -h 127.0.0.1 -p 18831 -t c/0 -m first; test -s got; }
wait_for there; for i in {1..30}; do mosquitto_pub -h 127.0.0.1 -p 18831 -t c/$i -m $i; done; wait $s; echo $?; sort -u got | head -1; rm got
kill $m; wait $m; echo $?
t dnsmasq -k -C d.conf >/dev/null 2>&1 & d=$!
answers() { test "$(/usr/bin/python3 ask.py 18853)" = 10.9.8.7; }
wait_for answers; for i in {1..20}; do /usr/bin/python3 ask.py 18853; done | sort -u; kill $d; wait $d; echo $?
t unbound -d -c u.conf >/dev/null 2>&1 & u=$!
resolves() { test "$(/usr/bin/python3 ask.py 18854)" = 10.9.8.7; }
wait_for resolves; kill $u; wait $u; echo $?
t socat UNIX-LISTEN:x.sock,fork EXEC:'tr a-z A-Z' & o=$!
up() { test -S x.sock; }
wait_for up; for i in 1 2 3; do echo abc$i | socat -t 5 - UNIX-CONNECT:x.sock; done; kill $o; wait $o; echo $?; rm -f x.sock
""", needs="mosquitto mosquitto_sub dnsmasq unbound socat root", shows=["10.9.8.7", "ABC3"], ignore=[("*.pid", "a number")], prepare=r"""
printf 'listener 18831 127.0.0.1\nallow_anonymous true\nuser root\n' >m.conf
printf 'port=18853\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\naddress=/test.example/10.9.8.7\nuser=root\npid-file=\n' >d.conf
printf 'server:\n port: 18854\n interface: 127.0.0.1\n do-daemonize: no\n username: ""\n chroot: ""\n directory: "."\n pidfile: ""\n use-syslog: no\n num-threads: 2\n local-zone: "example." static\n local-data: "test.example. A 10.9.8.7"\nremote-control:\n control-enable: no\n' >u.conf
cat >ask.py <<'END'
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)
q = struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0) + b'\4test\7example\0' + struct.pack('>HH', 1, 1)
try:
    s.sendto(q, ('127.0.0.1', int(sys.argv[1]))); a = s.recv(512); print('.'.join(map(str, a[-4:] if a[7] else b'')))
except OSError: pass
END
""", timeout=120)

cases("rsync, cppcheck, varnishd, dbus", r"""
mkdir -p from/d; for i in {1..50}; do echo $i >from/d/$i; done; t rsync -a --checksum from/ to; echo $?; diff -r from to; echo x >>from/d/7; t rsync -ai --no-times --checksum from/ to; echo $?
t cppcheck -q --enable=all --suppress=missingIncludeSystem --suppress=unmatchedSuppression bad.c; echo $?
t dbus-daemon --session --nofork --nopidfile --address=unix:path=$HOME/bus 2>/dev/null & d=$!
ask() { dbus-send --bus=unix:path=$HOME/bus --print-reply=literal --dest=org.freedesktop.DBus / org.freedesktop.DBus.GetNameOwner string:org.freedesktop.DBus; }
asked() { ask >/dev/null 2>&1; }
wait_for asked; for i in {1..10}; do ask; done; kill $d; wait $d; echo $?; rm -f bus
t varnishd -C -f v.vcl -n $HOME/v 2>&1 | grep -c VCL_; echo ${PIPESTATUS[0]}; rm -rf v
""", needs="rsync cppcheck dbus-daemon dbus-send varnishd", prepare=r"""
printf 'int f(int n) { int a[4]; a[9] = n; int *p = 0; return *p; }\n' >bad.c
printf 'vcl 4.1;\nbackend default { .host = "127.0.0.1"; .port = "1"; }\nsub vcl_recv { if (req.url ~ "^/a") { return (pass); } }\n' >v.vcl
""", ignore=[("to*", "compared above"), ("from*", "times")], timeout=120)

# Not in it: what fails or stops by the clock untraced, and what stress-ng makes no worker for on common machines.
STRESSORS = {
    "signals": "sigsegv sigfpe sigtrap sigrt sigq sigabrt sigsuspend sigpipe sigchld sigio sigfd signest itimer timerfd kill bad-altstack",
    "memory": "stackmmap mprotect mmapfixed mmapaddr madvise remap mremap munmap brk shm malloc mlock msync pagemove vm-addr vm-splice userfaultfd bigheap fault",
    "control flow": "context funcret longjmp nop goto branch switch regs fp-error x86cpuid opcode far-branch vdso dynlib env",
    "processes": "fork vfork clone pthread zombie wait ptrace unshare session resources personality futex membarrier sem pidfd poll dup",
    "rights": "prctl seccomp cap chroot landlock rlimit set schedpolicy access ring-pipe memfd",
}
for name, stressors in STRESSORS.items():
    cases(f"stress-ng: {name}", rf"""
for each in {stressors}; do
  stress-ng --$each 1 --$each-ops 3 -t 1 --quiet >/dev/null 2>&1 || continue
  followed stress-ng --$each 1 --$each-ops 5 -t 3 --quiet --verify --temp-path .; echo $each $?
done
""", needs="stress-ng root", shows=[f"{stressors.split()[0]} 0", f"{stressors.split()[3]} 0"], timeout=300, notes="of what they do to themselves contrail says something")
