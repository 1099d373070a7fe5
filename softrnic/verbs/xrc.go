package verbs

// XRCD is a domain of extended reliable connections (annex A14): requests to a target reach those shared receive
// queues that are in the same domain as the target.
//
// Annex A14 lets processes of one host have one connection to a process of another host, instead of one for
// each pair of processes. The sender has a queue pair of type XRCInitiator. The receivers' host has one of type
// XRCTarget, which has no protection domain: each request names the shared receive queue to which it goes.
// Here a domain belongs to the Context that has made it, and to no other: its shared receive queues may be in
// several protection domains, but of one program. Memory is checked in the protection domain of this queue, also for WRITEs, READs and
// atomics. Completions go to the completion queue of the shared receive queue.
type XRCD interface {
	// CreateTarget makes a queue pair of type XRCTarget, which takes neither posts nor completion queues: of
	// init, only the type is used.
	CreateTarget(init QPInit) (QP, error)
	// Dealloc ends the domain. It fails with ErrBusy while it has shared receive queues or targets.
	Dealloc() error
}

// XRCContext is a device with XRC.
type XRCContext interface {
	Context
	AllocXRCD() (XRCD, error)
}
