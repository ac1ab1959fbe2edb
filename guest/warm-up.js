// Runs once, when the image is built. It leaves only the structures that QuickJS creates on first use.
(async () => {
  const doubled = await Promise.all([1, 2].map(async (n) => n * 2));
  const { a, ...rest } = JSON.parse('{"a":[1,"x",null,true],"b":{"c":2.5}}');
  class Warm { constructor(n) { this.n = n; } get twice() { return this.n * 2; } }
  const words = "one two".split(" ").map((w) => w.toUpperCase()).filter(Boolean).join();
  try { null.x; } catch (error) { String(error.stack); }
  return JSON.stringify({ doubled, a, rest, words, twice: new Warm(2).twice, at: new Date(0), re: /x/g.test(words) });
})();
