# Starts a program with functions of it hooked by Gum's own `attach`, whose callbacks are native functions of a library.
#
#     gum.py LIBRARY index|detail FUNCTION|MOST PROGRAM [ARGUMENT...]
#
# FUNCTION is the only one to be hooked; then the program runs, with stdin, stdout and stderr of its own. A number is how
# many of the program's functions are hooked at most, in the order of their addresses; then it is killed, since not every
# program survives that. On stderr: `gum hooked 5000 failed 0 in 731.0 ms`.
import os
import sys
import time

import frida

library, flavour, which, *command = sys.argv[1:]

SCRIPT = """
rpc.exports.hook = (path, flavour, which) => {
  const library = Module.load(path);
  const callbacks = {
    onEnter: library.getExportByName('enter_' + flavour),
    onLeave: library.getExportByName('leave_' + flavour),
  };
  const most = /^[0-9]+$/.test(which) ? Number(which) : 0;
  const main = Process.mainModule;
  const functions = new Map();
  for (const symbol of main.enumerateSymbols().concat(main.enumerateExports())) {
    const wanted = most > 0 ? !symbol.name.startsWith('_') : symbol.name === which;
    if (symbol.type === 'function' && !symbol.address.isNull() && wanted) {
      functions.set(symbol.address.toString(), symbol.address);
    }
  }
  const addresses = [...functions.values()].sort((a, b) => a.compare(b)).slice(0, most || 1);
  let failed = 0;
  const started = Date.now();
  for (const address of addresses) {
    try {
      Interceptor.attach(address, callbacks);
    } catch (error) {
      failed++;
    }
  }
  Interceptor.flush();
  return [addresses.length - failed, failed, Date.now() - started];
};
"""

device = frida.get_local_device()
pid = device.spawn([os.path.abspath(command[0])] + command[1:], stdio="inherit")
session = device.attach(pid)
ended = []
session.on("detached", lambda *reason: ended.append(reason))
script = session.create_script(SCRIPT)
script.load()
hooked, failed, took = script.exports_sync.hook(os.path.abspath(library), flavour, which)
print(f"gum hooked {hooked} failed {failed} in {took:.1f} ms", file=sys.stderr, flush=True)
if which.isdigit():
    device.kill(pid)
else:
    device.resume(pid)
while not ended:
    time.sleep(0.01)
