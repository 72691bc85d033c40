// SPDX-License-Identifier: MIT
// Garbage and collections in the main thread and in workers, exceptions, WebAssembly; ends with status 8.
const { Worker, isMainThread, parentPort } = require('worker_threads');
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function deep(n) { return deep(n + 1) + 1; }
function work(rounds) {
  let sum = 0;
  for (let i = 0; i < rounds; i++) {
    const garbage = new Array(2000).fill(0).map((_, k) => ({ k, text: 'text ' + k }));
    sum += garbage.length + Buffer.alloc(50000, i).length;
    try { null.x } catch (e) { sum += e.stack.length > 0 ? 1 : 0 }
    if (i % 20 == 0 && global.gc) global.gc();
  }
  try { deep(0) } catch (e) { sum += e instanceof RangeError ? 1 : 0 }
  return sum + fib(20);
}
if (!isMainThread) {
  parentPort.postMessage(work(30));
} else {
  const code = Buffer.from('0061736d0100000001070160027f7f017f030201000707010361646400000a09010700200020016a0b', 'hex');
  let sums = 0, done = 0;
  for (let i = 0; i < 3; i++) {
    new Worker(__filename).on('message', (sum) => { sums += sum }).on('exit', () => {
      if (++done < 3) return;
      WebAssembly.instantiate(code).then((module) => {
        let total = 0;
        for (let i = 0; i < 100000; i++) total += module.instance.exports.add(i, 1);
        console.log(work(30), sums, total);
        process.exit(8);
      });
    });
  }
}
