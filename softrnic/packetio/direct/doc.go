// Package direct has the links of a rack whose NICs and switch run in one process (a compact rack).
//
// No thread of its own moves frames over these links. The thread that has sent frames carries them
// on: it runs the switch, then the NICs that the switch has sent frames to, then the switch again,
// until no frame waits. So a request and its answer pass through three state machines in one
// thread, without a system call and without waking another thread.
//
// Packets may pass open, that is, not encoded (packetio.Open): a NIC that says so (TakeOpen) gets those
// that the switch has let pass so, and the switch encodes a packet whenever something looks at its bytes.
//
// One thread at a time carries frames (Fabric.mu). Another thread that has sent frames leaves them to
// it. A NIC that is in use by a thread is left to that thread, which handles its frames when it is
// done (packetio.Carrier). So no thread waits for another one, and no order of locks can be wrong.
package direct
