# SPDX-License-Identifier: MIT
"""The long set: runtimes of many languages. Each program calls deeply, throws, collects garbage, has threads or
coroutines if its language has them, and tells its end by a status of its own."""
from commands.case import Cases

cases = Cases("languages")


def language(name, needs, file, source, script, prepare=""):
    cases(name, script, needs=needs, prepare=f"cat >{file} <<'END'\n{source}END\n{prepare}", timeout=120,
          ignore=[("*", "only what the programs print is compared")])


language("Common Lisp: sbcl", "sbcl", "a.lisp", r"""
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(print (fib 22))
(print (handler-case (error "oops") (error (e) (format nil "~a" e))))
(dotimes (i 200) (make-array 100000))
(gc :full t)
(print (handler-case (car 5) (type-error () :type-error)))
(print (reduce #'+ (loop for i below 100000 collect i)))
(let ((th (loop for i below 4 collect (let ((i i)) (sb-thread:make-thread (lambda () (fib (+ 15 i)))))))) (print (mapcar #'sb-thread:join-thread th)))
(print (handler-case (labels ((f (n) (+ 1 (f (+ n 1))))) (f 0)) (storage-condition () :exhausted)))
(terpri) (sb-ext:exit :code 3)
""", r"""
t sbcl --noinform --non-interactive --load a.lisp 2>&1
""")

language("OCaml: native, bytecode, the compilers", "ocamlopt.opt", "a.ml", r"""
let rec fib n = if n < 2 then n else fib (n-1) + fib (n-2)
exception E of int
let rec deep n = if n = 0 then raise (E 5) else 1 + deep (n-1)
let rec forever n = 1 + forever (n+1)
let () = Printf.printf "%d\n" (fib 22);
  (try ignore (deep 10000) with E n -> Printf.printf "caught %d\n" n);
  let l = List.init 100000 (fun i -> i * 7919 mod 100003) in
  Printf.printf "%d\n" (List.fold_left (+) 0 (List.sort compare l));
  Gc.full_major (); let h = Hashtbl.create 10 in for i = 0 to 50000 do Hashtbl.replace h (i mod 977) i done; Printf.printf "%d\n" (Hashtbl.length h);
  let t = List.init 4 (fun i -> Thread.create (fun () -> ignore (fib (15+i)); Thread.yield ()) ()) in List.iter Thread.join t;
  Printexc.record_backtrace true; (try deep 5 |> ignore with _ -> print_string (if String.length (Printexc.get_backtrace ()) > 10 then "bt\n" else "no bt\n")); exit 4
""", r"""
t ocamlopt.opt -I +threads unix.cmxa threads.cmxa a.ml -o native; t ocamlc.opt -I +threads unix.cma threads.cma a.ml -o byte; cp native stripped; strip stripped
for p in native byte stripped; do t ./$p; echo $?; done
""")

language("Haskell: ghc's programs, static, dynamic, stripped", "ghc", "a.hs", r"""
import qualified Data.Map.Strict as M
import Control.Concurrent
import Control.Exception
import Control.Monad
import System.Exit
fib :: Int -> Integer
fib n = if n < 2 then toInteger n else fib (n-1) + fib (n-2)
main :: IO ()
main = do
  print (fib 22)
  print (M.foldl' (+) 0 (M.fromList [(i, i*i) | i <- [1..20000 :: Int]]))
  r <- try (evaluate (1 `div` (0::Int))) :: IO (Either ArithException Int)
  print r
  mv <- newMVar (0::Int)
  ds <- forM [1..50] $ \i -> do { d <- newEmptyMVar; _ <- forkIO (replicateM_ 100 (modifyMVar_ mv (return . (+i))) >> putMVar d ()); return d }
  mapM_ takeMVar ds
  readMVar mv >>= print
  t <- forkIO (threadDelay 10000000 `catch` \e -> putStrLn ("killed " ++ show (e :: AsyncException)))
  threadDelay 10000; killThread t; threadDelay 10000
  exitWith (ExitFailure 5)
""", r"""
for p in static dynamic stripped; do t ./$p; echo $?; done
""", prepare=r"""ghc -threaded -O a.hs -o static >/dev/null; ghc -dynamic -threaded -O a.hs -o dynamic >/dev/null; strip -o stripped static
""")

language("Ada: gnat", "gnatmake", "a.adb", r"""
with Ada.Text_IO; use Ada.Text_IO; with Ada.Command_Line; with Ada.Exceptions;
procedure A is
  E : exception;
  function Fib (N : Integer) return Integer is (if N < 2 then N else Fib (N-1) + Fib (N-2));
  procedure Deep (N : Integer) is begin if N = 0 then raise E with "bottom"; end if; Deep (N-1); Put_Line ("never"); end;
  task type T (N : Integer); task body T is X : Integer; begin X := Fib (N); if X < 0 then Put_Line ("neg"); end if; end;
  Arr : array (1 .. 10) of Integer := (others => 0); I : Integer := 11;
begin
  Put_Line (Integer'Image (Fib (22)));
  begin Deep (100); exception when X : E => Put_Line ("caught " & Ada.Exceptions.Exception_Message (X)); end;
  begin Arr (I) := 5; exception when Constraint_Error => Put_Line ("constraint"); end;
  declare T1 : T (15); T2 : T (16); begin null; end;
  declare type P is access Integer; Q : P; begin Q.all := 5; exception when Constraint_Error => Put_Line ("null"); end;
  Ada.Command_Line.Set_Exit_Status (6);
end A;
""", r"""
t ./program; echo $?
""", prepare=r"""gnatmake -q a.adb -o program 2>/dev/null
""")

language("D: gdc", "gdc", "a.d", r"""
import std.stdio, std.algorithm, core.thread, core.memory, std.range, std.conv;
int fib(int n) { return n < 2 ? n : fib(n-1) + fib(n-2); }
class C { int[] a; this() { a = new int[1000]; } }
int main() {
  writeln(fib(22)); 
  try { deep(50); } catch (Exception e) { writeln("caught ", e.msg); }
  C[] keep; foreach (i; 0 .. 20000) { auto c = new C; if (i % 1000 == 0) keep ~= c; } GC.collect(); writeln(keep.length);
  auto f = new Fiber({ foreach (i; 0 .. 100) { Fiber.yield(); } }); int n; while (f.state != Fiber.State.TERM) { f.call(); n++; } writeln(n);
  Thread[] t; foreach (i; 0 .. 4) t ~= new Thread({ fib(18); GC.collect(); }).start(); foreach (x; t) x.join();
  writeln(iota(1000).map!(x => x * x).filter!(x => x % 3 == 0).sum); auto s = [3, 1, 2].sort.to!string; writeln(s);
  return 7;
}
void deep(int n) { scope(exit) n++; if (n == 0) throw new Exception("bottom"); deep(n - 1); }
""", r"""
t ./program; echo $?
""", prepare=r"""gdc -O a.d -o program
""")

language("Fortran", "gfortran", "a.f90", r"""
program a
  implicit none
  integer :: i; real(8) :: x(1000), s; complex(8) :: z; real(16) :: q
  do i = 1, 1000; x(i) = sin(real(i, 8)); end do
  s = sum(x * x); print '(F12.6)', s
  z = exp((0d0, 1d0) * 3.14159265358979d0); print '(2F12.6)', z
  q = sqrt(2q0); print '(F30.25)', q
  print *, fib(20), matmul(reshape([1,2,3,4],[2,2]), reshape([5,6,7,8],[2,2]))
  open(10, file='f.txt'); write(10, *) 'text', 5; close(10)
  stop 9
contains
  recursive integer function fib(n) result(r)
    integer, intent(in) :: n
    if (n < 2) then; r = n; else; r = fib(n-1) + fib(n-2); end if
  end function
end program
""", r"""
t ./program; echo $?
""", prepare=r"""gfortran -O a.f90 -o program
""")

language("Pascal: fpc", "fpc", "a.pas", r"""
program a; {$mode objfpc}{$H+}
uses {$ifdef unix}cthreads,{$endif} SysUtils, Classes;
type TT = class(TThread) procedure Execute; override; end;
function fib(n: integer): integer; begin if n < 2 then fib := n else fib := fib(n-1) + fib(n-2); end;
procedure TT.Execute; begin fib(18); end;
procedure deep(n: integer); begin try if n = 0 then raise Exception.Create('bottom'); deep(n-1); finally n := n + 1; end; end;
var i, z: integer; t: array[0..3] of TT; l: TStringList; p: ^integer; s: string;
begin
  writeln(fib(22));
  for i := 1 to 20 do try deep(30) except on e: Exception do if i = 20 then writeln('caught ', e.Message); end;
  z := 0; try writeln(5 div z) except on e: EDivByZero do writeln('div') end;
  p := nil; try p^ := 5 except on e: EAccessViolation do writeln('av') end;
  for i := 0 to 3 do t[i] := TT.Create(false); for i := 0 to 3 do begin t[i].WaitFor; t[i].Free end;
  l := TStringList.Create; for i := 1 to 5000 do l.Add(IntToStr(i * 7919 mod 5003)); l.Sort; writeln(l[7], ' ', l.Count); l.Free;
  s := ''; for i := 1 to 1000 do s := s + 'x'; writeln(length(s), Format(' %.3f %d', [3.14159, 42])); halt(8);
end.
""", r"""
t ./program; echo $?
""", prepare=r"""fpc -oprogram a.pas >/dev/null
""")

language("C#: mono, ahead-of-time and just-in-time", "mono mcs", "a.cs", r"""
using System; using System.Collections.Generic; using System.Threading; using System.Linq;
class A { static int Fib(int n) { return n < 2 ? n : Fib(n-1) + Fib(n-2); } static void Deep(int n) { if (n == 0) throw new Exception("bottom"); Deep(n-1); }
 static int Main() { Console.WriteLine(Fib(25)); int c = 0; for (int i = 0; i < 200; i++) try { Deep(20); } catch (Exception) { c++; } Console.WriteLine(c);
 try { string s = null; Console.WriteLine(s.Length); } catch (NullReferenceException) { Console.WriteLine("null"); }
 var l = new List<byte[]>(); for (int i = 0; i < 5000; i++) { l.Add(new byte[10000]); if (l.Count > 100) l.Clear(); } GC.Collect();
 var t = Enumerable.Range(0, 4).Select(i => new Thread(() => Fib(20))).ToList(); t.ForEach(x => x.Start()); t.ForEach(x => x.Join());
 Console.WriteLine(Enumerable.Range(0, 10000).Where(x => x % 3 == 0).Sum()); return 5; } }
""", r"""
t mcs -out:a.exe a.cs; t mono a.exe; echo $?; t mono --interpreter a.exe | tail -n 1; MONO_GC_PARAMS=major=marksweep t mono -O=-all a.exe; echo $?
""")

language("Erlang", "erl", "a.erl", r"""
-module(a). -export([main/0]).
fib(N) when N < 2 -> N; fib(N) -> fib(N-1) + fib(N-2).
main() -> io:format("~p~n", [fib(22)]), S = self(), [spawn(fun() -> S ! {I, fib(10)} end) || I <- lists:seq(1, 200)],
  io:format("~p~n", [lists:sum([receive {_, X} -> X end || _ <- lists:seq(1, 200)])]),
  io:format("~p~n", [catch error(oops)  =/= 1]), io:format("~p~n", [lists:sum([X || X <- lists:seq(1, 100000), X rem 3 == 0])]),
  io:format("~p~n", [os:cmd("echo child")]), halt(4).
""", r"""
t erl -noshell -s a main; echo $?
""", prepare=r"""erlc a.erl
""")

language("Scheme: chicken, chez", "csc scheme", "a.scm", r"""
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(display (fib 22)) (newline)
(display (call/cc (lambda (k) (for-each (lambda (x) (if (> x 3) (k x))) '(1 2 5 9)) 0))) (newline)
(define (loop n a) (if (= n 0) a (loop (- n 1) (+ a n)))) (display (loop 1000000 0)) (newline)
(define l (let f ((i 0)) (if (= i 100000) '() (cons i (f (+ i 1)))))) (display (length l)) (newline)
(exit 3)
""", r"""
t ./program; echo $?; t csi -s a.scm; echo $?; t scheme --script a.scm; echo $?
""", prepare=r"""csc a.scm -o program
""")

language("Prolog: swipl", "swipl", "a.pl", r"""
fib(0,0). fib(1,1). fib(N,F) :- N > 1, A is N-1, B is N-2, fib(A,X), fib(B,Y), F is X+Y.
:- initialization(main).
main :- fib(18,F), write(F), nl, catch(throw(oops),E,(write(caught(E)),nl)), findall(X,(between(1,100000,X),0 is X mod 1000),L), length(L,N), write(N), nl, catch(X2 is foo+1,Er,(print_message(silent,Er),write(err),nl)), halt(3).
""", r"""
t swipl a.pl; echo $?
""")

language("Forth: gforth", "gforth", "a.fs", r"""
: fib dup 2 < if else dup 1- recurse swap 2 - recurse + then ; 22 fib . cr
: t 1 throw ; ' t catch . cr : u 5 0 / ; ' u catch . cr : v 0 @ ; ' v catch . cr variable x 5 x ! x @ . cr 3 (bye)
""", r"""
t gforth a.fs; echo $?
""")

language("Lua: luajit", "luajit", "a.lua", r"""
local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end
print(fib(25)); local s = 0; for i = 1, 1e6 do s = s + i % 7 end print(s)
print(pcall(error, "x")); print(select(2, pcall(function() local t = nil; return t.x end)))
local co = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i) end end); local t = 0; for i = 1, 1000 do t = t + co() end print(t)
local ok, ffi = pcall(require, "ffi"); if ok then ffi.cdef[[int printf(const char*, ...); int abs(int); void qsort(void*, size_t, size_t, int(*)(const int*, const int*));]]
 local x = 0; for i = 1, 1e5 do x = x + ffi.C.abs(-i) end print(x); local a = ffi.new("int[50]"); for i = 0, 49 do a[i] = i * 7919 % 101 end
 ffi.C.qsort(a, 50, 4, function(p, q) return p[0] - q[0] end) print(a[0], a[25], a[49]) print(pcall(function() ffi.C.qsort(a, 5, 4, function() error("in callback") end) end)) end
local function deep(n) return 1 + deep(n + 1) end print(pcall(deep, 0)); os.exit(3)
""", r"""
t luajit a.lua; echo $?; t luajit -joff a.lua; echo $?
""")

cases("Python: pypy3, with its just-in-time compiler", r"""
t pypy3 -c 'print(sum(i * i % 7 for i in range(10 ** 6)))'
t pypy3 -c 'import threading, gc, json; t = [threading.Thread(target=lambda: json.dumps(list(range(20000)))) for _ in range(4)]
for x in t: x.start()
for x in t: x.join()
gc.collect(); print(len(json.dumps({str(i): [i] * 3 for i in range(3000)})))'
""", needs="pypy3", timeout=120)

cases("R", r"""
t R --vanilla -s -e 'x <- sapply(1:1000, function(i) i %% 7); print(sum(x)); print(solve(matrix(c(2, 1, 1, 3), 2)));
  tryCatch(stop("oops"), error = function(e) print(conditionMessage(e))); print(summary(lm(dist ~ speed, cars))$r.squared); gc() -> g; quit(status = 3)'; echo $?
""", needs="R", timeout=120)
