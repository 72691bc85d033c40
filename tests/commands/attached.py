# SPDX-License-Identifier: MIT
"""More of the long set: runtimes and servers at work that are attached to, again and again."""
from commands.case import Cases

cases = Cases("attached")

# Each works for some seconds, checks all that it computes, and says in the end whether it was right.
SOURCES = {
    "work.py": r'''
import asyncio, signal, sys, threading, time
ticks = [0]
def tick(number, frame): ticks[0] += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
async def work(n):
    await asyncio.sleep(0)
    return fib(n)
async def main():
    right, end = True, time.time() + 5
    while time.time() < end:
        right &= sum(await asyncio.gather(*[work(10) for _ in range(50)])) == 2750
        threads = [threading.Thread(target=fib, args=(15,)) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        right &= await (await asyncio.create_subprocess_exec("true")).wait() == 0
    signal.setitimer(signal.ITIMER_REAL, 0, 0)
    print(right and ticks[0] > 10)
asyncio.run(main())
sys.exit(3)
''',
    "Work.java": r'''
import java.util.*; import java.util.concurrent.*;
public class Work {
  static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
  static long one(int k) {
    Map<Integer, String> map = new HashMap<>();
    for (int i = 0; i < 20000; i++) map.put(i % 500, "v" + i);
    long sum = fib(20 + k % 3);
    try { if (k == 3) throw new IllegalStateException(); } catch (IllegalStateException e) { sum += 7; }
    try { Object none = k == 4 ? null : "x"; sum += none.hashCode(); } catch (NullPointerException e) { sum += 5; }
    return sum + map.size();
  }
  public static void main(String[] words) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    long first = 0, end = System.nanoTime() + 5_000_000_000L; boolean right = true;
    for (int turn = 0; System.nanoTime() < end; turn++) {
      List<Future<Long>> all = new ArrayList<>(); long sum = 0;
      for (int i = 0; i < 8; i++) { int k = i; all.add(pool.submit(() -> one(k))); }
      for (var one : all) sum += one.get();
      if (turn == 0) first = sum;
      right &= sum == first;
    }
    pool.shutdown(); System.out.println(first + " " + right); System.exit(3);
  }
}
''',
    "work.cs": r'''
using System; using System.Threading; using System.Linq; using System.Collections.Generic;
class Work {
  static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }
  static int Main() {
    var end = DateTime.UtcNow.AddSeconds(5); bool right = true; long first = 0;
    for (int turn = 0; DateTime.UtcNow < end; turn++) {
      long sum = 0;
      var all = Enumerable.Range(0, 4).Select(k => new Thread(() => {
        var map = new Dictionary<int, string>(); for (int i = 0; i < 5000; i++) map[i % 300] = "v" + i;
        try { if (k == 2) throw new Exception("x"); } catch (Exception) { Interlocked.Add(ref sum, 5); }
        Interlocked.Add(ref sum, Fib(15 + k) + map.Count); })).ToList();
      all.ForEach(t => t.Start()); all.ForEach(t => t.Join());
      if (turn == 0) first = sum;
      right &= sum == first; GC.Collect();
    }
    Console.WriteLine(first + " " + right); return 3;
  }
}
''',
    "work.erl": r'''
-module(work). -export([main/1]).
ring(0, First) -> receive X -> First ! X + 1 end;
ring(N, First) -> P = spawn(fun() -> ring(N - 1, First) end), receive X -> P ! X + 1 end.
turn(End, Right) -> case erlang:monotonic_time(millisecond) > End of
  true -> Right;
  false -> Self = self(), P = spawn(fun() -> ring(2000, Self) end), P ! 0, Sum = receive Y -> Y end,
    Caught = (catch throw(thrown)), L = lists:sort([erlang:phash2(I) || I <- lists:seq(1, 5000)]),
    turn(End, Right andalso Sum =:= 2001 andalso Caught =:= thrown andalso length(L) =:= 5000) end.
main(_) -> io:format("~p~n", [turn(erlang:monotonic_time(millisecond) + 5000, true)]), halt(3).
''',
    "work.scm": r'''
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(define end (+ (current-time) 6))
(let loop ((right #t))
  (if (< (current-time) end)
    (loop (and right (= (fib 20) 6765) (eq? 'c (catch #t (lambda () (error "x")) (lambda all 'c)))
               (= 42 (call/cc (lambda (k) (dynamic-wind (lambda () #f) (lambda () (k 42)) (lambda () #f)))))))
    (begin (display right) (newline) (exit 3))))
''',
    "work.lisp": r'''
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(let ((end (+ (get-universal-time) 6)) (right t))
  (loop while (< (get-universal-time) end) do
    (setf right (and right (eq :c (handler-case (error "x") (error () :c)))))
    (let ((all (loop repeat 3 collect (sb-thread:make-thread (lambda () (make-array 20000) (fib 20))))))
      (setf right (and right (equal '(6765 6765 6765) (mapcar #'sb-thread:join-thread all)))))
    (gc))
  (print right) (terpri) (sb-ext:exit :code 3))
''',
    "work.rkt": r'''
#lang racket/base
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(define end (+ (current-seconds) 6))
(let loop ([right #t])
  (if (< (current-seconds) end)
    (loop (and right (= (fib 20) 6765)
               (= 20 (for/sum ([t (for/list ([i 20]) (thread (lambda () (sleep 0))))]) (thread-wait t) 1))
               (eq? 'c (with-handlers ([exn:fail? (lambda (e) 'c)]) (error "x")))))
    (begin (displayln right) (exit 3))))
''',
    "work.R": r'''
fib <- function(n) if (n < 2) n else fib(n - 1) + fib(n - 2)
end <- Sys.time() + 5; right <- TRUE
while (Sys.time() < end) {
  right <- right && fib(12) == 144 && tryCatch(stop("x"), error = function(e) "c") == "c"
  set.seed(1); x <- rnorm(2000); right <- right && abs(coef(lm(I(2 * x) ~ x))[2] - 2) < 1e-9
}
print(right); quit(status = 3)
''',
    "work.el": r'''
(let ((end (+ (float-time) 5)) (right t))
  (while (< (float-time) end)
    (with-temp-buffer (insert (make-string 3000 ?a)) (goto-char 1)
      (while (re-search-forward "a\\{10\\}" nil t) (replace-match "bc"))
      (setq right (and right (= (buffer-size) 600))))
    (condition-case nil (error "x") (error nil)) (garbage-collect))
  (princ right) (kill-emacs 3))
''',
    "work.lua": r'''
local last, right = os.time() + 6, true
while os.time() < last do
  local all, sum = {}, 0
  for i = 1, 300 do
    all[i] = coroutine.wrap(function() local s = 0 while true do s = s + coroutine.yield(s) end end) all[i]()
  end
  for _ = 1, 5 do for i = 1, 300 do sum = sum + all[i](i) end end
  right = right and sum == 677250 and not pcall(error, "x")
end
print(right) os.exit(3)
''',
    "work.pl": r'''
fib(N, N) :- N < 2, !.
fib(N, F) :- A is N - 1, B is N - 2, fib(A, FA), fib(B, FB), F is FA + FB.
turn(End, Right) :- get_time(T), T > End, !, write(Right), nl.
turn(End, true) :- catch(throw(x), x, true), fib(16, 987), numlist(1, 2000, L), foldl([X, A, B]>>(B is A + X), L, 0, 2001000),
  findall(I, (between(1, 4, K), thread_create(fib(12, _), I), K > 0), Is), forall(member(I, Is), thread_join(I, true)), garbage_collect, !, turn(End, true).
turn(End, _) :- turn(End, false).
main :- get_time(T), End is T + 5, turn(End, true), halt(3).
''',
    "plain.lisp": r'''
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(defun deep (n) (if (zerop n) 0 (1+ (deep (1- n)))))
(let ((end (+ (get-universal-time) 6)) (right t))
  (loop (when (>= (get-universal-time) end) (return))
    (setf right (and right (= (fib 15) 610) (= (deep 1000) 1000) (eq :c (handler-case (error "x") (error () :c)))
                     (= 7 (catch 'out (dolist (i '(1 7 9)) (when (> i 5) (throw 'out i)))))))
    (make-array 20000))
  (format t "~a~%" right) (finish-output) END)
''',
    "plain.scm": r'''
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(define (deep n) (if (= n 0) 0 (+ 1 (deep (- n 1)))))
(define (turn n right)
  (if (= n 0) (begin (display (if right "right" "wrong")) (newline) (exit 3))
    (turn (- n 1) (and right (= (fib 20) 6765) (= (deep 20000) 20000)
                       (= 42 (call-with-current-continuation (lambda (k) (dynamic-wind (lambda () #f) (lambda () (k 42)) (lambda () #f)))))))))
(turn TURNS #t)
''',
    "work.ml": r'''
exception X
fun fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)
fun deep 0 = 0 | deep n = 1 + deep (n - 1)
fun turn 0 right = right
  | turn n right = turn (n - 1) (right andalso fib 20 = 6765 andalso deep 50000 = 50000 andalso ((raise X) handle X => true)
      andalso (1 div (n - n) handle Div => 5) = 5 andalso List.length (List.tabulate (20000, fn i => [i])) = 20000);
print (Bool.toString (turn 700 true) ^ "\n"); Posix.Process.exit 0w3;
''',
    "work.m": r'''
t = time() + 5; right = true;
while time() < t
  a = magic(40); right = right && abs(sum(real(eig(a))) - trace(a)) < 1e-6 && norm(a * inv(a + eye(40)) * (a + eye(40)) - a) < 1e-6;
  try; error("x"); catch e; right = right && strcmp(e.message, "x"); end
end
disp(right)
exit(3)
''',
    "work.hs": r'''
import Control.Concurrent
import Control.Exception
import qualified Data.Map as M
import System.CPUTime
import System.Exit
import Data.IORef
turn :: Int -> IO Bool
turn k = do
  let m = foldr (\i -> M.insertWith (+) (i `mod` 997) i) M.empty [k .. k + 20000]
  v <- newEmptyMVar
  mapM_ (\i -> forkIO (putMVar v $! sum [1 .. i * 100])) [1 .. 20]
  s <- sum <$> mapM (const (takeMVar v)) [1 .. 20 :: Int]
  r <- try (evaluate (k `div` 0)) :: IO (Either ArithException Int)
  return (M.size m == 997 && s == (14360500 :: Int) && either (const True) (const False) r)
main = do
  rights <- mapM turn [1 .. 700]
  print (and rights)
  exitWith (ExitFailure 3)
''',
}


def source(name):
    return f"cat >{name} <<'END-OF-SOURCE'\n{SOURCES[name].lstrip()}END-OF-SOURCE\n"


def runtime(title, name, command, needs, shows, build="", **more):
    cases(f"attached: {title}", f"attached {command}; echo $?", needs=needs, prepare=source(name) + build,
          shows=[shows, "3"], timeout=120, **more)


runtime("python, asyncio, threads, children, a timer", "work.py", "/usr/bin/python3 work.py", "/usr/bin/python3", "True")
runtime("java", "Work.java", "java -XX:-UsePerfData Work", "java javac", "true", "javac Work.java")
runtime("java, ZGC", "Work.java", "java -XX:-UsePerfData -XX:+UseZGC Work", "java javac", "true", "javac Work.java")
runtime("mono", "work.cs", "mono work.exe", "mono mcs", "True", "mcs work.cs")
runtime("erlang", "work.erl", "escript work.beam", "escript erlc", "true", "erlc work.erl")
runtime("guile", "work.scm", "guile -q --no-auto-compile work.scm", "guile", "#t")
runtime("sbcl", "work.lisp", "sbcl --script work.lisp", "sbcl", "T")
runtime("racket", "work.rkt", "racket work.rkt", "racket", "#t")
runtime("R", "work.R", "Rscript --vanilla work.R", "Rscript", "TRUE")
runtime("emacs", "work.el", "emacs --batch -Q -l work.el", "emacs", "t")
runtime("lua, coroutines", "work.lua", "lua5.4 work.lua", "lua5.4", "true")
runtime("haskell", "work.hs", "./work +RTS -N2", "ghc", "True", "ghc -O -threaded -rtsopts work.hs >/dev/null")
cases("attached: ffmpeg, x264 in threads", "attached ffmpeg -nostdin -v error -f lavfi -i testsrc=d=15:s=640x480 -c:v libx264 -threads 2 "
      "-f md5 -; echo $?", needs="ffmpeg", shows=["MD5="], timeout=120)

# A server each, and clients for some seconds whose answers are summed up. The ports are of the range that nobody is given.
LOAD = r"""
N=${N:-8000} P=$((20000 + PPID % 10000)); mkdir -p www; seq 20000 >www/f
ask() { for i in 1 2 3 4 5; do for k in 1 2 3 4 5 6 7 8; do curl -s -m 20 "$@" | md5sum; done; timeout 60 ab -q -n $N -c 10 "${@: -1}" | grep '^Failed\|^Complete\|^Non'; done | sort | uniq -c; }
"""
DONE = ["40 e071f707df7bbeee2a6a1eb48011ddd0", "5 Failed requests:        0"]
LIGHTTPD = r"""
printf 'server.document-root="%s"\nserver.port=%s\nserver.bind="127.0.0.1"\n' $PWD/www $P >light
"""
cases("attached: lighttpd under load", LOAD + LIGHTTPD + r"""
attached lighttpd -D -f light 2>/dev/null & server=$!
wait_for curl -s http://127.0.0.1:$P/f; ask http://127.0.0.1:$P/f
kill $server; wait $server; echo $?; rm -rf www light
""", needs="lighttpd curl ab", shows=DONE, timeout=120)
cases("attached: haproxy under load", LOAD + LIGHTTPD + r"""
lighttpd -D -f light 2>/dev/null & behind=$!
printf 'global\n nbthread 2\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n timeout connect 5s\nlisten f\n bind 127.0.0.1:%s\n server s 127.0.0.1:%s\n' $((P + 1)) $P >ha
attached haproxy -db -q -f ha & server=$!
wait_for curl -s http://127.0.0.1:$((P + 1))/f; ask http://127.0.0.1:$((P + 1))/f
kill $server; wait $server; echo $?; kill $behind; wait $behind; rm -rf www light ha
""", needs="lighttpd haproxy curl ab", shows=DONE, timeout=120)
for model in ("prefork", "event"):
    cases(f"attached: apache under load, {model}", "N=1000\n" + LOAD + rf"""
printf 'ServerName x\nServerRoot /usr/lib/apache2\nLoadModule mpm_{model}_module modules/mod_mpm_{model}.so\nLoadModule authz_core_module modules/mod_authz_core.so\nListen 127.0.0.1:%s\nDocumentRoot %s/www\nPidFile %s/pid\nErrorLog %s/err\nUser nobody\nGroup nogroup\nDefaultRuntimeDir %s\nMutex pthread\nMaxConnectionsPerChild 50\n' $P $PWD $PWD $PWD $PWD >conf
attached setsid apache2 -DFOREGROUND -f $PWD/conf & server=$!
wait_for curl -s http://127.0.0.1:$P/f; ask http://127.0.0.1:$P/f
kill $server; wait $server; echo $?; rm -rf www conf err pid
""", needs="apache2 curl ab root", shows=DONE, timeout=120)
cases("attached: memcached under load", r"""
P=$((20000 + PPID % 10000))
attached memcached -u nobody -l 127.0.0.1 -p $P & server=$!
cat >load.py <<'END'
import os, socket, sys, time
link = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile("rwb")
end, right = time.time() + 5, True
while time.time() < end:
    for i in range(500):
        value = b"%d" % (i * i)
        key = b"k%d.%d" % (os.getpid(), i % 300)
        link.write(b"set %s 0 0 %d\r\n%s\r\nget %s\r\n" % (key, len(value), value, key)); link.flush()
        right &= [link.readline().strip() for _ in range(4)][2] == value
print(right)
END
wait_for /usr/bin/python3 -c "import socket; socket.create_connection(('127.0.0.1', $P))"
for i in 1 2 3; do /usr/bin/python3 load.py $P & clients="${clients:-} $!"; done; wait $clients
kill $server; wait $server; echo $?; rm load.py
""", needs="memcached root", shows=["True\nTrue\nTrue"], timeout=120)
runtime("prolog", "work.pl", "swipl -q -f none -g main work.pl", "swipl", "true")
runtime("clisp", "plain.lisp", "clisp -q -norc plain.lisp", "clisp", "T", "sed -i 's/END)/(ext:exit 3))/' plain.lisp")
runtime("ecl", "plain.lisp", "ecl --norc --shell plain.lisp", "ecl", "T", "sed -i 's/END)/(ext:quit 3))/' plain.lisp")
runtime("chicken", "plain.scm", "csi -q -s plain.scm", "csi", "right", "sed -i 's/TURNS/130/' plain.scm")
runtime("gambit", "plain.scm", "gsi plain.scm", "gsi", "right", "sed -i 's/TURNS/400/' plain.scm")
runtime("polyml", "work.ml", "poly --script work.ml", "poly", "true")
runtime("octave", "work.m", "octave-cli --no-gui --norc work.m", "octave-cli", "1")
