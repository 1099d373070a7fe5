// Package ipc provides the verbs to a process that does not own the NIC: a program on a host of a
// rack opens the NIC of the host's daemon, and gets a verbs.Context like that of package device.
//
//	ctx, err := ipc.Open(ipc.Config{}) // finds the daemon by the environment, as `rdmalab exec` sets it
//	pd, err := ctx.AllocPD()
//	mr, err := pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteRead)
//	cm := ctx.Manager() // Dial and Listen, by the NIC's connection manager
//
// Objects are made and changed by requests on a socket. Work requests and completions go through
// rings in shared memory: as long as daemon and program poll, a post or a poll makes no system
// call; if one of them sleeps, the other wakes it. A post returns when the NIC has taken or refused
// the work requests, as with the other implementations.
//
// Memory: the NIC reaches memory that the daemon has made, so RegMR takes nil or what Context.Alloc
// returned; other buffers are refused with verbs.ErrNotSupported. The pages of all memory are made when
// the program gets it, so that they count as memory of the program's cgroup, even if only peers use
// them. No payload is copied on its way. ReadAt and WriteAt of a region copy bytes directly. If the
// NIC accesses the region at the same time, only aligned words are consistent, as with a real
// adapter. Load64 and Store64 are atomic with respect to remote atomics.
//
// When the program ends, for whatever reason, the daemon destroys all of its objects. Regions made
// by Share stay, with their keys and addresses, for the next program that opens them by name.
//
// A Context survives a crash of the NIC as one of package device does: its objects are dead
// (verbs.ErrClosed), and new ones can be made when the NIC is back. It does not survive the daemon,
// nor one that is silent for longer than Config.Patience: every wait ends with its condition,
// its deadline, or the end of the context.
package ipc
