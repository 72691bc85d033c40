# SPDX-License-Identifier: MIT
"""The long set, `make torture`: servers, compilers, runtimes, debuggers, other projects' builds and test-suites."""
import os

from commands.case import Cases
from commands.small import BIG, C_SOURCE, CPP_SOURCE, GIT, TREE

cases = Cases("programs")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Debian's sources of some packages, fetched by tools/torture.sh.
SOURCES = os.path.join(ROOT, "build", "sources")
POSTGRES = "/usr/lib/postgresql/15/bin"
TIMES = [(r"\b\d+(\.\d+)? ?(ms|s|sec|secs|seconds|us|ns)\b", "TIME", "elapsed times")]
SOURCE_FILES = "cat >source.c <<'END'" + C_SOURCE + "END\ncat >source.cpp <<'END'" + CPP_SOURCE + "END\n"
MAKE_PROJECT = r"""
for n in one two three four five six; do echo "int $n(int x) { return x * ${#n}; }" >$n.c; done
echo '#include <stdio.h>
#include <stdlib.h>
int one(int), two(int), three(int), four(int), five(int), six(int);
int main(int c, char **v) { printf("%d\n", one(two(three(four(five(six(c > 1 ? atoi(v[1]) : 1))))))); }' >main.c
"""

# --- compilers and builds; t before a command in the build traces each of its processes

cases("gcc: driver, cc1, as, collect2, ld", r"""
t gcc -wrapper t -O2 -Wall -g source.c -o program; echo $?
t ./program; echo $?
t gcc -wrapper t -O3 -flto source.c -o lto; t ./lto; echo $?
t gcc -S -O1 -fverbose-asm -o source.s source.c
t objdump -d --no-show-raw-insn program | wc -l
t readelf -aW program | grep -v BuildID | t md5sum
t strip -o stripped program; t size program
t ar rc lib.a source.s; t strings -n 8 program | head -n 5; t addr2line -e program -f main
""", needs="gcc objdump", prepare=SOURCE_FILES, ignore=[("*.a", "times"), ("lto", "names of temporary files")], timeout=120)

cases("g++: cc1plus", r"""
t g++ -wrapper t -O1 -std=c++17 -pthread source.cpp -o program; echo $?
t ./program; echo $?
""", needs="g++", prepare=SOURCE_FILES, timeout=120)

cases("clang-14: C++", r"""
t clang++-14 -O1 -std=c++17 -pthread -c source.cpp; echo $?
t clang-14 -O2 -Wall source.c -o program; t ./program; echo $?
t clang-14 -fsyntax-only -xc - <<< 'int f( {'; echo $?
t clang-14 -S -emit-llvm -O1 -o - source.c | wc -l
t llvm-dis-14 --version | head -n 2
""", needs="clang-14", prepare=SOURCE_FILES, timeout=120)

cases("git: each command traced", GIT + r"""
mkdir repo; cd repo; t git init -q -b main; cp -a ../tree/a ../tree/d .
t git add .; t git commit -q -m first
for i in 1 2 3; do echo "$i" >>d/1.txt; t git commit -q -am "change $i"; done
t git checkout -q -b side HEAD~2; echo side >side; t git add side; t git commit -q -m side
t git rebase -q main; echo $?
t git merge -q --no-ff -m merge main; t git checkout -q main; t git merge -q side
t git log --stat --oneline; t git diff HEAD~2; t git blame d/1.txt; t git tag v1; t git describe
t git mv d/2.txt d/moved; t git rm -q d/3.txt; t git status --short; t git stash -q; t git stash pop -q; t git reset -q --hard
t git cherry-pick side~1 2>&1 | tail -n 2; t git cherry-pick --abort; t git revert --no-edit HEAD; t git reflog | wc -l
t git archive --format=tar HEAD | tar tf - | wc -l; t git gc -q; t git fsck; t git bundle create -q ../b --all; t git count-objects
t git clone -q . ../clone; cd ../clone; t git log -1 --format=%H; t git grep -n 'text 5'; t git bisect start HEAD HEAD~4; t git bisect good
t git cat-file -p HEAD^{tree}; t git rev-list --objects --all | wc -l; t git fetch -q ../b; t git worktree add -q ../w HEAD~1; t git shortlog -s HEAD
""", needs="git", prepare=TREE, ignore=[("*/.git/index", "inode numbers, times"), ("*/index", "the same")], timeout=120)

cases("make -j2: everything traced", r"""
t make -j2 CC='t gcc -wrapper t' main 2>&1 | sort; ./main 7; echo $?
t make -j2 broken; echo $?
""", needs="make gcc", timeout=120, prepare=MAKE_PROJECT + r"""
printf 'O = main.o one.o two.o three.o four.o five.o six.o\nmain: $O\n\t$(CC) -o $@ $^\nbroken:\n\t@exit 3\n' >Makefile
""")

cases("lua: built from source by make -j2, its own build traced", r"""
cd lua5.4-5.4.4/src
printf 'CFLAGS = -O2 -DLUA_USE_POSIX -DLUA_USE_DLOPEN -DLUA_COMPAT_5_3\nO = $(filter-out lua.o luac.o, $(patsubst %%.c,%%.o,$(wildcard *.c)))\nall: lua luac\nlua luac: %%: %%.o $O\n\t$(CC) -o $@ $^ -lm -Wl,-E\n' >own.mk; echo '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"' >lua5.4-deb-multiarch.h
t make -s -j2 -f own.mk CC='t gcc -wrapper t'; echo $?
t ./lua -e 'print(_VERSION, #string.rep("x", 1000))'
echo 'function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end print(fib(21))' | t ./luac -o fib.out -; t ./lua fib.out
""", needs=f"make gcc {SOURCES}/lua5.4-5.4.4", prepare=f"cp -a {SOURCES}/lua5.4-5.4.4 .\n", timeout=300)

cases("zlib: configure, make -j2, its tests", r"""
cd zlib-1.2.13.dfsg
t ./configure >../out 2>&1; echo $?
t make -s -j2 CC='t gcc -wrapper t' >../out 2>&1; echo $?
for p in example minigzip; do for k in '' sh 64; do test -x $p$k && cp Makefile.in input && case $p in
  example) t ./$p$k | grep -v version;;
  *) t ./$p$k <input | t ./$p$k -d | cmp - input; echo $?;; esac; done; done
""", needs=f"make gcc {SOURCES}/zlib-1.2.13.dfsg", prepare=f"cp -a {SOURCES}/zlib-1.2.13.dfsg .\n", timeout=300,
      ignore=[("out", "the order of -j2"), ("*.a", "times"), ("*configure.log", "has times")])

cases("contrail's own tree: meson, ninja -j2", r"""
t meson setup build source >out 2>&1; echo $?
t ninja -C build -j2 >out 2>&1; echo $?
build/contrail version
t ninja -C build -n | tail -n 1
""", needs="meson ninja gcc", timeout=600, prepare=r"""
mkdir source; git -C $CT_ROOT archive HEAD | tar xf - -C source
""", ignore=[("*", "objects name their paths; the build's success is compared")])

cases("cmake, with ninja", r"""
t cmake -G Ninja -S . -B build >out 2>&1; echo $?
t ninja -C build -j1; echo $?
build/main 4
t cmake -E md5sum main.c; t cmake -P script.cmake; t ctest --test-dir build 2>&1 | grep 'tests passed'
""", needs="cmake ninja", timeout=200, prepare=MAKE_PROJECT + r"""
echo 'cmake_minimum_required(VERSION 3.10)
project(p C)
add_executable(main main.c one.c two.c three.c four.c five.c six.c)
enable_testing()
add_test(NAME runs COMMAND main 3)' >CMakeLists.txt
echo 'foreach(i RANGE 1 300)
math(EXPR x "${i} * ${i}")
list(APPEND l ${x})
endforeach()
list(LENGTH l n)
message("${n} ${x}")' >script.cmake
""", ignore=[("build/*", "has times"), ("out", "has times")])

cases("rustc, cargo", r"""
export CARGO_HOME=$PWD/cargo CARGO_INCREMENTAL=0
t /usr/bin/rustc --version
t /usr/bin/rustc -O --edition 2021 source.rs -o program; echo $?
t ./program; echo $?
cd project; RUSTC=/usr/bin/rustc t cargo build --offline -q; echo $?; t target/debug/project; echo $?
""", needs="/usr/bin/rustc cargo", timeout=300, prepare=r"""
mkdir -p project/src; printf '[package]\nname = "project"\nversion = "0.1.0"\nedition = "2021"\n' >project/Cargo.toml
cat >source.rs <<'END'
use std::{collections::HashMap, panic, sync::{Arc, Mutex}, thread};
fn main() {
    let m = Arc::new(Mutex::new(HashMap::new()));
    let h: Vec<_> = (0..6u64).map(|t| { let m = m.clone(); thread::spawn(move || for i in 0..500 { *m.lock().unwrap().entry(i % 37).or_insert(0u64) += t * i; }) }).collect();
    for h in h { h.join().unwrap() }
    let mut v: Vec<_> = m.lock().unwrap().iter().map(|(k, v)| (*k, *v)).collect(); v.sort(); println!("{:?}", &v[..5]);
    println!("{:?}", panic::catch_unwind(|| { let v: Vec<i32> = vec![]; v[3] }).is_err());
    println!("{:?}", "a,b;c".split(|c| c == ',' || c == ';').collect::<Vec<_>>());
    std::process::exit(5)
}
END
cp source.rs project/src/main.rs
""", ignore=[("project/target/*", "has times"), ("cargo/*", "has times")],
      normal=[(r"thread '(\S+)' \(\d+\)", r"thread '\1'", "thread ids")])

cases("go build and run", r"""
export GOCACHE=$PWD/cache GOPATH=$PWD/go GOFLAGS=-mod=mod GO111MODULE=off
t go build -o program main.go; echo $?
t ./program; echo $?
for p in stress cgo; do CGO_ENABLED=1 go build -o $p $p.go; for o in '' GOGC=1 GOMAXPROCS=1; do
  env $o t ./$p 2>err; echo $?; grep -E '^(panic|fatal|.signal)' err | sed 's/ pc=.*//'; done; done
go build -buildmode=pie -o pie main.go && t ./pie; t go vet main.go
""", needs="go", timeout=300, prepare=r"""
cat >main.go <<'END'
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"
)

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func deep(n int) int {
	var a [100]int
	a[n%100] = n
	if n == 0 {
		return 0
	}
	return deep(n-1) + a[n%100] - n
}

func main() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	m := map[int]int{}
	for i := 0; i < 50; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			for j := 0; j < 100; j++ {
				mu.Lock()
				m[j%10] += i
				mu.Unlock()
				runtime.Gosched()
			}
		}(i)
	}
	wg.Wait()
	keys := []int{}
	for k := range m {
		keys = append(keys, k)
	}
	sort.Ints(keys)
	fmt.Println(keys, m[3], fib(20), deep(10000))
	func() {
		defer func() { fmt.Println("recovered", recover()) }()
		var p *int
		fmt.Println(*p)
	}()
	garbage := 0
	for i := 0; i < 2000; i++ {
		garbage += len(strings.Repeat("x", 10000))
	}
	runtime.GC()
	out, err := exec.Command("echo", "child").Output()
	fmt.Println(garbage, string(out), err)
	select {
	case <-time.After(20 * time.Millisecond):
		fmt.Println("timer")
	}
	os.Exit(3)
}
END
cat >stress.go <<'END'
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"
)

type node struct{ l, r *node }

func tree(d int) *node {
	if d == 0 {
		return &node{}
	}
	return &node{tree(d - 1), tree(d - 1)}
}
func (n *node) count() int {
	if n.l == nil {
		return 1
	}
	return 1 + n.l.count() + n.r.count()
}
func grow(n int) int {
	var b [512]byte
	b[n%512] = 1
	if n == 0 {
		return 0
	}
	return grow(n-1) + int(b[n%512])
}
func spin(n int) (s int) {
	for i := 0; i < n; i++ {
		s += i ^ s
	}
	return
}
func main() {
	var prof bytes.Buffer
	pprof.StartCPUProfile(&prof)
	var wg sync.WaitGroup
	res := make([]int, 40)
	for i := range res {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			res[i] = tree(10).count() + grow(500+i*10)
			func() {
				defer func() { recover() }()
				var m map[string]int
				m["x"] = 1
			}()
			spin(3000000)
		}(i)
	}
	wg.Wait()
	fmt.Println(res)
	c := make(chan os.Signal, 10)
	signal.Notify(c, syscall.SIGUSR1)
	for i := 0; i < 20; i++ {
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		<-c
	}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hi %s", r.URL.Path) }))
	for i := 0; i < 30; i++ {
		r, err := http.Get(fmt.Sprintf("http://%s/%d", l.Addr(), i))
		if err != nil {
			panic(err)
		}
		b, _ := io.ReadAll(r.Body)
		if string(b) != fmt.Sprintf("hi /%d", i) {
			panic(string(b))
		}
	}
	var z bytes.Buffer
	g := gzip.NewWriter(&z)
	json.NewEncoder(g).Encode(res)
	g.Close()
	gr, _ := gzip.NewReader(&z)
	b, _ := io.ReadAll(gr)
	fmt.Println(len(b), runtime.NumGoroutine() > 0)
	pprof.StopCPUProfile()
	fmt.Println(prof.Len() > 100)
	buf := make([]byte, 1<<16)
	fmt.Println(runtime.Stack(buf, true) > 100)
	t := time.NewTicker(time.Millisecond)
	for i := 0; i < 20; i++ {
		<-t.C
	}
	ch := make(chan int)
	go func() { for i := 0; i < 1000; i++ { ch <- i }; close(ch) }()
	s := 0
	for v := range ch { s += v }
	fmt.Println(s)
	var p *node
	fmt.Println(p.count())
}
END
cat >cgo.go <<'END'
package main
/*
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern int goCallback(int);
static int call(int n) { char b[100]; snprintf(b, 100, "%d", n); return goCallback(atoi(b)) + strlen(b); }
static int cmp(const void *a, const void *b) { return goCallback(*(int*)a) - goCallback(*(int*)b); }
static void sort(int *a, int n) { qsort(a, n, sizeof *a, cmp); }
*/
import "C"
import ("fmt"; "sync"; "runtime"; "unsafe")
//export goCallback
func goCallback(n C.int) C.int { if n == 77 { runtime.GC() }; return n * 2 }
func main() {
  var wg sync.WaitGroup
  out := make([]int, 100)
  for i := range out { wg.Add(1); go func(i int) { defer wg.Done(); for j := 0; j < 20; j++ { out[i] += int(C.call(C.int(i*j%100))) } }(i) }
  wg.Wait(); s := 0
  for _, v := range out { s += v }
  a := make([]C.int, 300)
  for i := range a { a[i] = C.int(i * 7919 % 307) }
  C.sort((*C.int)(unsafe.Pointer(&a[0])), 300)
  fmt.Println(s, a[:5])
  func() { defer func() { fmt.Println(recover()) }(); panic("x") }()
  var p *int
  *p = 3
}
END
""", ignore=[("cache/*", "has times"), ("program", "a build id"), ("err", "addresses")])

cases("java: javac, a program with threads, exceptions, collections", r"""
t javac Main.java; echo $?
t java -Xshare:auto Main; echo $?
t java -Xint Main; echo $?
t java -XX:+UseSerialGC -Xmx64m -XX:TieredStopAtLevel=1 Main; echo $?
t java -XX:+UseParallelGC Main; echo $?
t jar cf main.jar *.class; t java -cp main.jar Main | tail -n 1
""", needs="javac java", timeout=200, prepare=r"""
cat >Main.java <<'END'
import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class Main {
  static int deep(int n) { return n == 0 ? 0 : 1 + deep(n - 1); }
  static int endless(int n) { return endless(n + 1) + 1; }
  public static void main(String[] a) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(8); List<Future<Long>> all = new ArrayList<>();
    for (int t = 0; t < 30; t++) { final int n = t; all.add(pool.submit(() -> LongStream.range(0, 20000).map(x -> x * n % 101).sum())); }
    long sum = 0; for (Future<Long> f : all) sum += f.get(); pool.shutdown(); System.out.println(sum);
    Map<String, Integer> m = new TreeMap<>(); for (int i = 0; i < 50000; i++) m.merge("k" + i % 97, i, Integer::sum); System.out.println(m.get("k5"));
    int caught = 0; for (int i = 0; i < 20000; i++) try { Object o = i % 2 == 0 ? null : "s"; o.hashCode(); } catch (NullPointerException e) { caught++; } System.out.println(caught);
    try { endless(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
    List<byte[]> keep = new ArrayList<>(); for (int i = 0; i < 3000; i++) { keep.add(new byte[20000]); if (keep.size() > 500) keep.clear(); } System.gc();
    System.out.println(deep(3000) + IntStream.range(0, 100000).parallel().filter(x -> x % 3 == 0).count());
    Process p = new ProcessBuilder("echo", "child").start(); System.out.print(new String(p.getInputStream().readAllBytes())); System.out.println(p.waitFor());
    Thread t = new Thread(() -> { try { Thread.sleep(100000); } catch (InterruptedException e) { System.out.println("interrupted"); } }); t.start(); t.interrupt(); t.join();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook"))); System.exit(6);
  }
}
END
""", ignore=[("*.jar", "has times")])

cases("node: workers, wasm, streams, children, errors", r"""
t node script.js; echo $?
t node --max-old-space-size=40 -e 'let a = []; for (let i = 0; i < 3e5; i++) { a.push({ i, s: "x" + i }); if (a.length > 1e5) a = []; } console.log(a.length)'
t node --jitless -e 'console.log([3,1,2].sort(), (function f(n) { return n < 2 ? n : f(n-1) + f(n-2) })(18))'
t node -e 'throw new Error("uncaught")' 2>&1 | grep -c 'Error: uncaught'
t node -e 'function f() { f() } try { f() } catch (e) { console.log(e.message) }'
t node --expose-gc --trace-opt -e 'function g(x) { return x * 2 } let s = 0; for (let i = 0; i < 1e6; i++) s += g(i); gc(); console.log(s)' | tail -n 1
t node -e 'process.on("SIGTERM", () => { console.log("term"); process.exit(2) }); setInterval(() => {}, 10); setTimeout(() => process.kill(process.pid, "SIGTERM"), 50)'; echo $?
t npm --version | wc -l
""", needs="node", timeout=120, prepare=r"""
cat >script.js <<'END'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads'), fs = require('fs'), http = require('http');
if (!isMainThread) { const sab = new Int32Array(workerData); for (let i = 0; i < 5000; i++) Atomics.add(sab, 0, 1); parentPort.postMessage('done'); }
else (async () => {
  const sab = new SharedArrayBuffer(4);
  const done = await Promise.all([1, 2, 3, 4].map(() => new Promise(r => new Worker(__filename, { workerData: sab }).on('message', r)))); console.log(done, new Int32Array(sab)[0]);
  const server = http.createServer((q, s) => s.end('you asked ' + q.url)).listen(0);
  await new Promise(r => server.once('listening', r));
  const get = path => new Promise(r => http.get({ port: server.address().port, path }, s => { let t = ''; s.on('data', d => t += d).on('end', () => r(t)) }));
  console.log(await Promise.all(['/a', '/b', '/c'].map(get))); server.close();
  fs.writeFileSync('out.txt', 'x'.repeat(1e6)); let n = 0; for await (const c of fs.createReadStream('out.txt')) n += c.length; console.log(n);
  const { spawn } = require('child_process'); const c = spawn('sort', ['-r']); c.stdin.end('a\nb\nc\n'); let o = ''; for await (const d of c.stdout) o += d; console.log(o.split('\n'));
  const big = 2n ** 2000n; console.log(big.toString().length, [..."héllo"].reverse().join(''), new Intl.NumberFormat('en').format(1234567.891));
  const p = require('crypto').pbkdf2Sync('a', 'b', 20000, 32, 'sha256').toString('hex'); console.log(p);
  console.log(await Promise.allSettled([Promise.reject(new Error('no')), 1]).then(a => a.map(x => x.status)));
  const vm = require('vm'); console.log(vm.runInNewContext('a * 2', { a: 21 })); process.exitCode = 3;
})();
END
""")

# --- servers

cases("nginx: static files, proxy, reload, many clients", r"""
mkdir -p logs tmp; U=http://127.0.0.1:47180
t nginx -p $PWD -c nginx.conf -e logs/error.log &
wait_for curl -s $U/tree/a/file3
for i in {1..40}; do curl -s $U/tree/a/file$i; done | md5sum
t curl -s -D - -o got $U/big.txt | grep -c 200; cmp got big.txt
curl -s -r 100-200 $U/big.txt | md5sum; curl -s -o /dev/null -w '%{http_code}\n' $U/nothing
curl -s --compressed $U/proxy/tree/a/file39 | md5sum
for i in {1..8}; do (for j in {1..25}; do curl -s $U/tree/a/file$j; done | md5sum) & pids[i]=$!; done; wait ${pids[@]}
nginx -p $PWD -c nginx.conf -e logs/error.log -s reload; sleep 0.5; curl -s $U/tree/a/file9 | md5sum
t wget -q -O - $U/tree/a/file5 | md5sum
nginx -p $PWD -c nginx.conf -e logs/error.log -s quit; wait; echo $?
""", needs="nginx curl wget", prepare=TREE + BIG + r"""
cat >nginx.conf <<'END'
daemon off; master_process on; worker_processes 2; pid logs/pid; user root;
events { worker_connections 64; }
http { access_log logs/access.log; client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f; uwsgi_temp_path tmp/u; scgi_temp_path tmp/s;
  gzip on; server { listen 127.0.0.1:47180; root .; location /proxy/ { proxy_pass http://127.0.0.1:47180/; } } }
END
sed -i "s|root \\.|root $PWD|" nginx.conf
""", ignore=[("logs/*", "has times and pids")])

cases("nginx: one process, no workers", r"""
mkdir -p logs tmp; U=http://127.0.0.1:47181
t nginx -p $PWD -c nginx.conf -e logs/error.log &
wait_for curl -s $U/big.txt
for i in {1..200}; do echo "url=$U/big.txt"; echo 'output=/dev/null'; done >list; t curl -s -K list -w '%{http_code}\n' | sort | uniq -c
t curl -s $U/big.txt | md5sum; t curl -s -X POST -d a=b $U/ -o /dev/null -w '%{http_code}\n'
kill -TERM $(cat logs/pid); wait; echo $?
""", needs="nginx curl", prepare=BIG + r"""
cat >nginx.conf <<'END'
daemon off; master_process off; pid logs/pid; worker_processes 1;
events { worker_connections 64; }
http { access_log off; client_body_temp_path tmp/b; proxy_temp_path tmp/p; fastcgi_temp_path tmp/f; uwsgi_temp_path tmp/u; scgi_temp_path tmp/s;
  server { listen 127.0.0.1:47181; root ROOT; } }
END
sed -i "s|root ROOT|root $PWD|" nginx.conf
""", ignore=[("logs/*", "has times and pids")])

cases("postgres: initdb, server, psql, pgbench, dump, stop", r"""
P=""" + POSTGRES + r"""; umask 077; as() { runuser -u postgres -- "$@"; }; D=/tmp/contrail-torture-pg.$PPID; rm -rf $D; mkdir $D; chown postgres $D
as t $P/initdb -D $D/data -A trust --no-sync -N >$D/initdb.out 2>&1; echo $?
as t $P/postgres -D $D/data -c listen_addresses= -c unix_socket_directories=$D -c fsync=off -c logging_collector=off 2>$D/log & server=$!
wait_for $P/psql -h $D -U postgres -c 'select 1'
t $P/psql -X -h $D -U postgres <<'END'
create table t(id serial primary key, a int, b text);
insert into t(a, b) select i * 7919 % 10007, 'text ' || i % 97 from generate_series(1, 20000) i;
create index on t(a); analyze t;
select count(*), sum(a), min(b), max(b) from t;
select b, count(*) from t group by b order by 2 desc, 1 limit 5;
begin; delete from t where a % 2 = 0; savepoint s; select 1/0; rollback to s; select count(*) from t; rollback;
create function f(n int) returns bigint language plpgsql as $$ declare s bigint := 0; begin for i in 1..n loop s := s + i; end loop; return s; exception when others then return -1; end $$;
select f(10000); select jsonb_agg(x) from (select a, b from t order by id limit 3) x;
create table u as select * from t; select count(*) from t join u using (a); vacuum t;
select no_such();
\dt
END
t $P/pgbench -h $D -U postgres -i -q -s 1 postgres >/dev/null 2>&1; echo $?
t $P/pgbench -h $D -U postgres -c 4 -j 2 -t 50 postgres 2>/dev/null | grep -c 'processed: 200/200'
t $P/pg_dump -h $D -U postgres -t t | grep -v restrict | md5sum
t $P/psql -X -h $D -U postgres -c 'copy t to stdout' | md5sum
as $P/pg_ctl -D $D/data -m fast -w stop; wait $server; echo $?
grep -c -E 'PANIC|was terminated|crash' $D/log
as sh -c "echo 'select sum(g) from generate_series(1, 1000) g' | t $P/postgres --single -D $D/data postgres" 2>/dev/null | grep -v '^.*----' | head -n 20
rm -rf $D
""", needs=f"root runuser {POSTGRES}/postgres", timeout=120)

cases("redis: under load, all data types, Lua, persistence, replication", r"""
t redis-server --port 0 --unixsocket $PWD/sock --save '' --appendonly yes --daemonize no --dir $PWD --logfile log --enable-debug-command yes --io-threads 2 &
wait_for redis-cli -s sock ping
t redis-benchmark -s sock -n 4000 -c 30 -P 4 -q >/dev/null; echo $?
for i in {1..2000}; do echo "hset h$((i % 50)) f$i $i"; echo "zadd z$((i % 7)) $i m$i"; echo "xadd s $i-1 k v$i"; echo "setbit b $((i * 7)) 1"; echo "pfadd p $i"; done | t redis-cli -s sock --pipe | tail -n 1
t redis-cli -s sock eval 'local s = 0 for i = 1, 20000 do s = s + i end return {s, redis.call("zcard", "z3"), cjson.encode({1, 2})}' 0
t redis-cli -s sock bgsave; for i in {1..100}; do redis-cli -s sock info persistence | grep -q rdb_bgsave_in_progress:0 && break; sleep 0.1; done
redis-cli -s sock bitcount b; redis-cli -s sock pfcount p; redis-cli -s sock xlen s; redis-cli -s sock debug digest-value h3 z3
redis-cli -s sock info persistence | grep rdb_last_bgsave_status; redis-cli -s sock object freq x; redis-cli -s sock debug sleep 0; redis-cli -s sock nosuch
t redis-check-aof appendonlydir/*.manifest | tail -n 1
redis-cli -s sock shutdown nosave; wait; echo $?
t redis-check-rdb dump.rdb | tail -n 1 | sed 's/.*RDB/RDB/'
""", needs="redis-server redis-cli redis-benchmark redis-check-rdb", timeout=120,
      ignore=[("log", "has times"), ("appendonlydir/*", "the order of many clients"), ("dump.rdb", "has times")],
      normal=[(r"(?m)^\d+ keys.*", "", "random keys of the benchmark")])

cases("sqlite3: several shells on one database", r"""
t sqlite3 db 'pragma journal_mode=wal; create table t(k integer primary key, w int, v text)'
for w in 1 2 3 4; do
  { echo '.timeout 60000'; for j in {1..8}; do echo "begin immediate; with recursive c(i) as (select 1 union all select i + 1 from c where i < 1000)
    insert into t(w, v) select $w, printf('%d of %d: %d', i, $j, i * 7919 % 10007) from c; commit; select count(*), max(v) from t where w = $w;"; done; } | t sqlite3 db >out$w & pids[w]=$!
done
for i in {1..5}; do t sqlite3 -cmd '.timeout 60000' db 'select count(*) % 1000 from t'; done
wait ${pids[@]}; cat out?
t sqlite3 db 'select w, count(*), sum(length(v)), min(v) from t group by w; create index i on t(v); create virtual table f using fts5(x); insert into f select v from t;
  select count(*) from f where f match "of"; select count(*) from f where f match "9"; pragma integrity_check; delete from t where k % 2; vacuum; select count(*) from t, json_each("[1,2,3]")' 2>&1
t sqlite3 -csv -header db 'select w, v from t order by w, v limit 3; select sum(a.w * b.w) from t a join t b using (v); select * from nothing' 2>&1; echo $?
t sqlite3 db .dump | grep -c INSERT
""", needs="sqlite3", timeout=120, ignore=[("db*", "the order of the shells' transactions")])

cases("python http.server, curl, wget", r"""
t python3 -u -m http.server --bind 127.0.0.1 47182 >out 2>&1 & server=$!
U=http://127.0.0.1:47182; wait_for curl -s $U/
for i in {1..20}; do t curl -s $U/tree/a/file$i; done | md5sum
t curl -s -o /dev/null -w '%{http_code}\n' $U/none; t wget -q -r -nH -P got $U/tree/d/; find got -type f | sort | xargs md5sum
t curl -s $U/tree/a/file[1-20] | wc -c; t curl --nothing; t curl -sS http://127.0.0.1:47183/; echo $?
kill $server; wait $server; echo $?
""", needs="python3 curl wget", prepare=TREE, ignore=[("out", "has times")],
      normal=[(r"after \d+ ms: ", "", "how long curl tried")])

cases("ssh-keygen, gpg, openssl s_server", r"""
t ssh-keygen -q -t ed25519 -N '' -C test -f key; t ssh-keygen -y -f key | cut -c1-20; t ssh-keygen -l -f key.pub | cut -d' ' -f1,3-
t ssh-keygen -q -t rsa -b 2048 -N secret -f rsa; t ssh-keygen -p -P secret -N '' -f rsa >/dev/null; echo $?
export GNUPGHOME=$TMPDIR/gnupg; mkdir -m 700 $GNUPGHOME
t gpg --batch --quiet --passphrase '' --quick-gen-key 'Test <a@b>' ed25519 sign 1y 2>/dev/null; echo $?
t gpg --batch --armor --detach-sign -o sig big.txt; t gpg --batch --verify sig big.txt 2>&1 | grep -c 'Good signature'
t gpg --batch --quiet --passphrase x --pinentry-mode loopback -c -o enc big.txt; t gpg --batch --quiet --passphrase x --pinentry-mode loopback -d enc 2>/dev/null | cmp - big.txt
t gpg --list-keys 2>/dev/null | grep -c Test; gpgconf --kill all
openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -subj /CN=localhost -days 2 2>/dev/null
t openssl s_server -quiet -accept 47184 -key k.pem -cert c.pem -www >/dev/null 2>&1 & server=$!
wait_for curl -sk https://localhost:47184/; t curl -s --cacert c.pem https://localhost:47184/ | grep -c Cipher; kill $server; wait $server
""", needs="ssh-keygen gpg openssl curl", prepare=BIG, timeout=120,
      ignore=[("key*", "random"), ("rsa*", "random"), ("sig", "random"), ("enc", "random"), ("*.pem", "random")],
      normal=[(r"\d+ \(ED25519\)", "ED25519", "")])

# --- debuggers and tracers around and in a recording

cases("gdb: a batch session, itself traced", r"""
t gdb -nx -batch -ex 'break insert' -ex run -ex bt -ex 'info locals' -ex delete -ex 'finish' -ex 'print $rip != 0' -ex continue ./program 2>&1 | sed -E 's/0x[0-9a-f]+/ADDR/g; s/process [0-9]+/process/'
t gdb -nx -batch -ex 'disassemble main' -ex 'info functions insert' -ex 'ptype struct node' -ex 'list main' ./program | wc -l
""", needs="gdb gcc", prepare=SOURCE_FILES + "gcc -g -O0 source.c -o program\n", timeout=120)

cases("strace, ltrace-like and time, themselves traced", r"""
t strace -f -qq -e trace=openat,write -o log sh -c 'echo one; cat /etc/hostname >/dev/null; (echo two)'; grep -c openat log >/dev/null; echo $?
t strace -c -o log true; echo $?
t strace -e trace=exit_group -o log sh -c 'exit 3'; echo $?; cat log | sed 's/^[0-9]* *//'
""", needs="strace", ignore=[("log", "has pids and addresses")])

SANITIZED = r"""
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
static std::mutex m; static long total; static jmp_buf jb; static int shared;
__attribute__((noinline)) int deep(int n) { char b[200]; memset(b, n, sizeof b); if (n == 0) throw std::runtime_error("bottom"); return deep(n - 1) + b[5]; }
__attribute__((noinline)) void lj(int n) { char b[100]; memset(b, 1, 100); if (n == 0) longjmp(jb, 1); lj(n - 1); }
int main(int c, char **v) {
  std::vector<std::thread> t; for (int i = 0; i < 4; i++) t.emplace_back([] { for (int j = 0; j < 1000; j++) { std::lock_guard<std::mutex> l(m); total += j; std::string s(j % 50, 'x'); total += s.size(); } });
  for (auto &x : t) x.join(); printf("%ld\n", total);
  for (int i = 0; i < 50; i++) try { deep(20); } catch (std::exception &e) { if (i == 49) puts(e.what()); }
  for (int i = 0; i < 50; i++) if (!setjmp(jb)) lj(10);
  char *p = (char *)malloc(10); p[3] = 7; if (c > 1 && v[1][0] == 'o') { fflush(stdout); volatile char x = p[12]; (void)x; } free(p);
  if (c > 1 && v[1][0] == 'u') { fflush(stdout); volatile int i = 0x7fffffff; i = i + c; }
  if (c > 1 && v[1][0] == 'r') { std::thread a([] { for (int i = 0; i < 1000; i++) shared++; }), b([] { for (int i = 0; i < 1000; i++) shared++; }); a.join(); b.join(); }
  if (c > 1 && v[1][0] == 'l') { void *volatile q = malloc(77); q = nullptr; }
  puts("end"); return 3; }
"""
# Which of two racing threads is reported, and where it stood, is chance.
cases("sanitizers: address, leak, undefined, thread, memory", r"""
for p in gaddress gundefined gleak gthread caddress cundefined cthread cmemory; do for fault in none overflow unsigned race leak; do
  t ./$p $fault 2>report; echo "$p $fault $?"; grep -E '^SUMMARY|runtime error' report | sed -E 's/0x[0-9a-f]+/ADDRESS/g; s/(data race) .*/\1/' | sort -u
done; done
""", needs="g++ clang++-14", prepare="cat >s.cpp <<'END'" + SANITIZED + """END
for k in address undefined thread leak; do g++ -g -O1 -fsanitize=$k s.cpp -o g$k -pthread; done
for k in address undefined thread memory; do clang++-14 -g -O1 -fsanitize=$k s.cpp -o c$k -pthread; done
""", ignore=[("report", "has addresses")], timeout=120)

# --- interpreters

cases("perl: more", r"""
t perl -MTest::More -MPOSIX -MStorable=dclone -MTime::Local -MFile::Find -MIO::Socket -Mthreads -MThread::Queue -e '
  my $q = Thread::Queue->new; my @t = map { my $n = $_; threads->create(sub { $q->enqueue($n * $_) for 1..50; return $n }) } 1..5; my $s = 0; $s += $_->join for @t; is $s, 15;
  is $q->pending, 250; is_deeply dclone({a=>[1,2]}), {a=>[1,2]}; is timegm(0,0,0,1,0,100), 946684800; find(sub { $s++ }, "tree"); ok $s > 50;
  socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0); syswrite $a, "hi"; sysread $b, my $x, 9; is $x, "hi"; is join(",", unpack "N n C a*", pack "N n C a*", 1, 2, 3, "z"), "1,2,3,z";
  local $@; eval { local $SIG{__DIE__} = sub { die "wrapped @_" }; die "x\n" }; like $@, qr/wrapped/; my $r = qr/^(?<a>\d+)(?{ 1 })/; ok "123" =~ $r; is $+{a}, 123; is sprintf("%.15g", exp 1), "2.71828182845905"; done_testing'
t perl -c -e 'use strict; $x = 1'; echo $?
t perldoc -T -f splice 2>/dev/null | head -n 3
t perl -d:Trace -e 1 2>/dev/null; echo $?
t perl -Mbignum -e 'print 2**200, "\n"'; t cpan -v 2>/dev/null | wc -l; t pod2man --version 2>/dev/null | wc -l; t perl -V:version
""", needs="perl", prepare=TREE)

cases("php, ruby, lua, tcl, guile, busybox, vim", r"""
command -v php >/dev/null && { t php -r '$a = range(1, 5000); shuffle($a); sort($a); echo array_sum($a), " ", md5("x"), " ", json_encode(["a" => [1, null]]), "\n"; try { intdiv(1, 0); } catch (DivisionByZeroError $e) { echo $e->getMessage(), "\n"; }
  function g() { for ($i = 0; $i < 1000; $i++) yield $i; } $s = 0; foreach (g() as $x) $s += $x; echo $s, preg_replace("/(\d)/", "<$1>", "a1b2"), "\n"; $f = new Fiber(function () { $x = Fiber::suspend(1); echo $x, "\n"; }); echo $f->start(); $f->resume("resumed"); exit(3);'; echo $?; }
command -v ruby >/dev/null && { t ruby -e 'def fib(n) n < 2 ? n : fib(n-1) + fib(n-2) end; puts fib(18); puts (1..1000).map { |x| x * 7919 % 1009 }.sort.first(3).inspect
  t = 5.times.map { |i| Thread.new { (1..200).sum * i } }; puts t.map(&:value).sum; begin; raise "x"; rescue => e; puts e.message; ensure; puts "ensured"; end
  f = Fiber.new { 100.times { |i| Fiber.yield i }; :end }; puts (1..101).map { f.resume }.last; puts catch(:done) { 10.times { |i| throw :done, i if i == 3 } }
  puts `echo child`; pid = fork { exit 4 }; Process.wait pid; puts $?.exitstatus; trap("USR1") { puts "usr1" }; Process.kill("USR1", $$); sleep 0.05; GC.start; ObjectSpace.each_object(String).count; exit 2'; echo $?; }
command -v guile >/dev/null && { t guile --no-auto-compile -c '(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (display (fib 18)) (newline) (display (call/cc (lambda (k) (for-each (lambda (x) (if (> x 3) (k x))) (list 1 2 5 9)) 0))) (newline) (display (catch #t (lambda () (error "oops")) (lambda (k . a) k))) (newline) (gc) (exit 4)'; echo $?; }
command -v vim.tiny >/dev/null && { t vim.tiny -u NONE -N -es -c '%s/line/LINE/g' -c 'g/7/d' -c 'wq' big.txt; echo $?; md5sum big.txt; }
command -v busybox >/dev/null && { for a in 'md5sum big.txt' 'wc big.txt' 'ls -la tree/d' 'find tree -type l' 'du tree/d' 'sed -n 5,9p big.txt' 'vi --help'; do t busybox $a 2>&1 | head -n 5; done
  t busybox sh -c 'f() { echo $(($1 * 2)); }; for i in 1 2 3; do f $i; done | sort -r; trap "echo bye" EXIT; kill -USR1 $$'; echo $?; t busybox tar cf - tree/a | t busybox gzip | t busybox gunzip | tar tf - | wc -l; }
command -v tclsh >/dev/null && echo 'proc f n {expr {$n < 2 ? $n : [f [expr {$n-1}]] + [f [expr {$n-2}]]}}; puts [f 16]; puts [lsort -integer {5 3 9 1}]; after 20 {set done 1}; vwait done; coroutine c apply {{} {yield 1; yield 2}}; puts [c]; catch {error x} e; puts $e; puts [clock format 0 -gmt 1]; exit 5' | t tclsh; echo $?
""", prepare=TREE + BIG, normal=[(r"(?m)^total \d+", "total", "blocks"), (r"(?m)^\d+\ttree/d", "N tree/d", "blocks")])

cases("emacs, groff, man, m4, bison, flex, autoconf, where installed", r"""
echo 'define(`f'"'"', `ifelse($1, 0, 1, `eval($1 * f(decr($1)))'"'"')'"'"')f(12) translit(hello, a-y, b-z)' | t m4
printf '.TH X 1\n.SH NAME\nx \\- y\n.PP\nText that is filled and adjusted.\n' | t groff -Tutf8 -man 2>/dev/null | head -n 5
t man --version | wc -l; command -v bison >/dev/null && echo '%%
a: | a "x";' >g.y && t bison -o g.c g.y; echo $?
command -v autoconf >/dev/null && { printf 'AC_INIT([x],[1])\nAC_PROG_CC\nAC_OUTPUT\n' >configure.ac; t autoconf; echo $?; t ./configure -q; echo $?; }
""", needs="m4", ignore=[("*", "generated files have times")], timeout=120)

# --- pipelines of everything, many processes

cases("coreutils: one hundred short programs", r"""
cd tree
for p in arch basename 'cat empty' 'cksum empty' 'comm empty empty' 'cut -c1 a/file3' 'date -d @0' 'df --output=target /' 'dir a' dircolors 'dirname a/b' 'du -s a' 'echo x' env 'expand empty' 'expr 1 + 1' 'factor 77' \
  false 'fmt a/file9' 'fold -w 3 a/file9' groups 'head -n 2 a/file9' hostid id 'join a/file1 a/file2' 'link d/1.txt l' logname 'ls -i nothing' 'md5sum a/file1' 'mkdir m' 'mkfifo p' 'mknod q p' \
  'mktemp -u x.XXXX' 'mv l l2' nice 'nl a/file2' nohup nproc 'numfmt 5' 'od a/file1' 'paste a/file1 a/file2' 'pathchk a' pinky 'pr -t a/file2' 'printenv HOME' 'printf %s x' 'ptx d/1.txt' pwd 'readlink d/link' \
  'realpath d/link' 'rm l2' 'rmdir m' 'seq 3' 'sha1sum a/file1' 'sha224sum a/file1' 'sha384sum a/file1' 'sha512sum a/file1' 'shred -u d/2.txt' 'shuf -i 1-1' 'sleep 0.01' 'sort -R empty' 'split -n 2 a/file9 y.' 'stat -c %s a/file1' \
  'stty -a' 'sum a/file1' sync 'tac a/file2' 'tail -n 2 a/file9' 'tee z' 'test -f z' 'timeout 9 true' 'touch w' true 'truncate -s 5 w' 'tsort a/file2' tty 'uname' 'unexpand a/file2' 'uniq a/file2' 'unlink w' users \
  'vdir --time-style=+ -G d' 'wc a/file9' who whoami 'yes --help' 'b2sum a/file1' 'base32 a/file1' 'basenc --base16 a/file1' 'chgrp 0 a/file1' 'chown 0 a/file1' 'chroot / true' 'chcon --help' 'csplit -s a/file9 2' \
  'install a/file1 v' 'runcon' 'stdbuf -o0 echo x' 'who -b' uptime; do t $p </dev/null >o 2>&1; echo "$p: $? $(md5sum <o)"; done
""", prepare=TREE, timeout=120, ignore=[("tree/o", "output of uptime")],
      normal=[(r"(?m)^(uptime|dircolors|df [^:]*|du [^:]*|mktemp [^:]*|dir a|who -b|vdir [^:]*): (\d+) \w+ +-", r"\1: \2", "times, names, sizes on this machine")])

cases("a fork storm of shells", r"""
t bash -c 'for i in {1..400}; do (exit $((i % 7))) & done; wait; s=0; for i in {1..60}; do x=$(echo $i | cat); s=$((s + x)); done; echo $s'
t sh -c 'i=0; while [ $i -lt 200 ]; do /bin/true & i=$((i + 1)); done; wait; echo done'
t xargs -P 4 -n 1 -a <(seq 200) sh -c 'exit 0' sh; echo $?
t make -s -j 8 -f - <<'END'
all: $(shell seq 1 80)
%: ; @:
END
""", needs="make")

# --- other projects' test-suites

PERL_TESTS = r"""
cd perl-5.36.0/t
for f in FOLDER/*.t; do
  case $f in re/uniprop*|re/fold_grind*|op/threads-dirh*|io/socketpair*|op/alarm*|op/time_loop*|op/sselect*|re/speed*|op/getppid*|re/user_prop_race*) continue;; esac
  test -f $f || continue
  timeout 1500 t ./perl $f </dev/null >o 2>e; echo "$f status $?"; grep -E '^(not )?ok|^1\.\.|^# Looks|^Bail' o | sed -E 's/ - .*| #.*//'
done
"""
PERL_PREPARE = rf"""
mkdir -p perl-5.36.0; cp -a {SOURCES}/perl-5.36.0/t {SOURCES}/perl-5.36.0/MANIFEST {SOURCES}/perl-5.36.0/*.h perl-5.36.0
cp /usr/bin/perl perl-5.36.0/t/perl; mkdir perl-5.36.0/lib; P=$(perl -e 'print join " ", grep {{ -d && m,^/usr/(share|lib/x86_64-linux-gnu)/perl(-base|/5), }} reverse @INC')
for d in $P; do cp -rsf $d/. perl-5.36.0/lib/ 2>/dev/null || true; done
cp -rn {SOURCES}/perl-5.36.0/lib/unicore perl-5.36.0/lib/ || true; cp -n {SOURCES}/perl-5.36.0/lib/*.pl perl-5.36.0/lib/ || true
"""
for perl_folder in ("base", "cmd", "comp", "io", "mro", "op", "opbasic", "re", "uni", "lib"):
    cases(f"perl's own core tests: {perl_folder}", PERL_TESTS.replace("FOLDER", perl_folder), needs=f"{SOURCES}/perl-5.36.0",
          prepare=PERL_PREPARE, timeout=1800, normal=[(r"\(0x[0-9a-f]+\)", "(ADDRESS)", "addresses in names of tests")],
          outcome=lambda folder, stdout, stderr: stdout.splitlines())

cases("git's own test-suite, some of it", r"""
mkdir bin; for p in git git-shell git-upload-pack git-receive-pack; do printf '#!/bin/sh\nexec t /usr/bin/%s "$@"\n' $p >bin/$p; chmod +x bin/$p; done
cd git/t; export GIT_TEST_INSTALLED=$HOME/bin GIT_TEST_EXEC_PATH=/usr/lib/git-core TEST_NO_MALLOC_CHECK=1 TEST_OUTPUT_DIRECTORY=$HOME/out; mkdir -p $HOME/out
for f in t0001-init t0003-attributes t3400-rebase t4001-diff-rename t5510-fetch t6012-rev-list-simplify t7600-merge; do
  test -f $f.sh && bash ./$f.sh </dev/null 2>/dev/null | sed -E 's/ - .*| #.*//' | sed "s/^/$f /"
done
""", needs=f"{SOURCES}/git-2.39.5/t/helper/test-tool git", prepare=rf"""
mkdir git; cd {SOURCES}/git-2.39.5; cp -a t GIT-BUILD-OPTIONS templates contrib $HOME/git/; cp -a git git-* *.sh $HOME/git/ 2>/dev/null || true
""", timeout=3000, outcome=lambda folder, stdout, stderr: stdout.splitlines())
