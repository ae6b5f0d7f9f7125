// Runs inside the target, in Frida's script engine. It loads the agent library and hands on what only Frida can do:
// calling the library, telling of modules that come and go, and Gum's own hooks for what stubs must leave.
//
// Addresses travel as hexadecimal text, since a number in JSON has only 53 bits. The names of the exports are plain
// lower case, because Frida's hosts disagree on how to translate any others.

'use strict';

let library = null;
const call = {};

// Why cooperative: the function blocks, and the script's lock must be free while it does.
const WAITS = { scheduling: 'cooperative', exceptions: 'propagate' };
const QUICK = { scheduling: 'exclusive', exceptions: 'propagate' };

const MODULE_ADDED = 1;
const MODULE_REMOVED = 2;

function bind(name, result, parameters, options) {
  const address = library.findExportByName(name);
  if (address === null) throw new Error(`${library.path} has no ${name}`);
  return new NativeFunction(address, result, parameters, options);
}

// Gum tells a native callback which hook called it only through this function, and hands out no address for it.
let getter = null;
function handOverGetter() {
  if (getter !== null) return;
  getter = new CModule(`
    #include <gum/guminterceptor.h>
    void * getter (void) { return (void *) gum_invocation_context_get_listener_function_data; }
  `);
  call.gum(new NativeFunction(getter.getter, 'pointer', [])());
}

// Functions that Gum may be calling itself must not be waiting for this script, so nothing here is asynchronous.
let observer = null;

rpc.exports = {
  load(path) {
    library = Module.load(path);
    call.open = bind('spoor_open', 'int64', ['uint64', 'uint64', 'uint32', 'uint32'], QUICK);
    call.close = bind('spoor_close', 'void', ['int64'], QUICK);
    call.routines = bind('spoor_routines', 'pointer', [], QUICK);
    call.serve = bind('spoor_serve', 'void', ['uint32', 'uint64'], WAITS);
    call.gum = bind('spoor_gum', 'void', ['pointer'], QUICK);
    return { path: library.path, base: library.base.toString(), size: library.size, thread: Process.getCurrentThreadId() };
  },

  open(ringBytes, rings, stackBytes, flags) {
    return call.open(uint64(ringBytes), uint64(rings), stackBytes, flags).toNumber();
  },

  close(descriptor) {
    call.close(descriptor);
  },

  routines() {
    const table = call.routines();
    const count = table.readU64().toNumber();
    const addresses = [];
    for (let index = 1; index <= count; index++) addresses.push('0x' + table.add(8 * index).readU64().toString(16));
    return addresses;
  },

  serve(kind) {
    call.serve(kind, 0);
  },

  // Hooks by Gum itself, of entries alone. Each is [address, header].
  attach(hooks) {
    handOverGetter();
    const onEnter = library.getExportByName('spoor_gum_enter');
    let attached = 0;
    const failed = [];
    for (const [address, header] of hooks) {
      try {
        Interceptor.attach(ptr(address), onEnter, ptr(header));
        attached++;
      } catch (error) {
        failed.push([address, error.message]);
      }
    }
    Interceptor.flush();
    return { attached, failed };
  },

  detach() {
    Interceptor.detachAll();
    Interceptor.flush();
  },

  // The observer runs in the thread that loads or unloads: when a module is mapped and before it is relocated and its
  // constructors run; and when it is no longer mapped, so that something else may be there already. It first tells of
  // what is there.
  watch() {
    if (observer !== null) return 0;
    let present = 0;
    let known = true;
    observer = Process.attachModuleObserver({
      onAdded(module) {
        if (known) present++;
        else call.serve(MODULE_ADDED, uint64(module.base.toString()));
      },
      onRemoved(module) {
        call.serve(MODULE_REMOVED, uint64(module.base.toString()));
      },
    });
    known = false;
    return present;
  },

  unwatch() {
    if (observer !== null) observer.detach();
    observer = null;
  },
};
