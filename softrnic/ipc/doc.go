// Package ipc provides the verbs to a process that does not own the NIC: a program on a host of a
// rack opens the NIC of the host's daemon, and gets a verbs.Context like that of package device.
//
//	ctx, err := ipc.Open(ipc.Config{}) // finds the daemon by the environment, as `rdmalab exec` sets it
//	pd, err := ctx.AllocPD()
//	mr, err := pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteRead)
//	cm := ctx.Manager() // Dial and Listen, by the NIC's connection manager
//
// Objects are made and changed by requests on a socket. Work requests and completions go through
// rings in shared memory. As long as daemon and program poll, a post or a poll makes no system
// call; if one of them sleeps, the other one wakes it. A post of sends that the NIC cannot refuse
// returns at once. Any other post returns when the NIC has taken or refused the work requests, so
// it returns the same errors as package device. The NIC takes all posts of a thread before it
// executes a later call of that thread.
//
// Memory: the NIC reaches only memory that the daemon has allocated, so RegMR takes nil or memory
// from Context.Alloc; it refuses other buffers with verbs.ErrNotSupported. The pages are allocated
// at once, in the program's process, so that they count in the program's memory cgroup even if only
// peers use them. No payload is copied on its way. ReadAt and WriteAt of a region copy bytes
// directly. If the NIC accesses the region at the same time, only aligned words are consistent, as
// with a real adapter. Load64 and Store64 are atomic with respect to remote atomics.
//
// When the program ends for any reason, the daemon destroys all of its objects. Regions made by
// Share stay, with their keys and addresses, for the next program that opens them by name.
//
// A Context survives a crash of the NIC as one of package device does: its objects are invalid
// (verbs.ErrClosed), and new ones can be made when the NIC is back. A Context ends with its daemon,
// and when the daemon is silent for longer than Config.Patience. Every wait ends when its condition
// is true, at its deadline, or with the context.
//
// The methods of the objects are documented in package verbs.
package ipc
