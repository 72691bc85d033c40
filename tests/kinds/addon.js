// SPDX-License-Identifier: MIT
const addon = require(process.argv[2]);
let sum = 0;
for (let i = 0; i < 1000; i++)
  sum += addon.triple(i);
console.log(sum);
